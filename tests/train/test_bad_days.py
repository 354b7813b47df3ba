"""Disk, memory, signals and clocks: what was saved, what was not, and an exit code that is no bug report."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from ranks import on_ranks
from runs import run_of, toml_of

from anygrpo.cli.main import main
from anygrpo.errors import ConfigError, Interrupted, TrainingError
from anygrpo.train import checkpoint, snapshot
from anygrpo.train.folder import read_rows
from anygrpo.train.interrupt import GRACE, grace_seconds
from anygrpo.train.loop import train

SUPPORT = str(Path(__file__).parents[1] / "support")


def start(*words: str, limit=None, **env: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "anygrpo", "train", *words, "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env=os.environ | {"PYTHONPATH": SUPPORT} | env, preexec_fn=limit,
    )  # fmt: skip


def reached(folder: Path, rows: int, process: subprocess.Popen) -> None:
    file = folder / "metrics.jsonl"
    while process.poll() is None and (not file.is_file() or file.read_bytes().count(b"\n") < rows):
        time.sleep(0.01)


def test_a_disk_that_fills_ends_with_what_was_saved(tmp_path):
    """A real one: the system refuses to let metrics.jsonl grow."""
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml", training={"steps": 4000, "checkpoint_every": 20})
    process = start(str(recipe), limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000)))
    said, _ = process.communicate(timeout=250)
    assert process.returncode == 4, said
    assert "internal error" not in said
    assert "File too large" in said
    newest = checkpoint.newest(tmp_path / "run" / "checkpoints")
    assert newest is not None
    assert f"saved: {newest}, whole" in said
    assert "step(s) since then are lost" in said or "nothing is lost" in said


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOENT])
def test_whatever_the_disk_says_is_a_training_error_with_an_account(tmp_path, monkeypatch, code):
    run = run_of(tmp_path / "run", training={"steps": 9, "checkpoint_every": 2})
    seal = checkpoint._seal

    def full(folder):
        if "00000004" in folder.name:
            raise OSError(code, os.strerror(code))
        seal(folder)

    monkeypatch.setattr(checkpoint, "_seal", full)
    with pytest.raises(TrainingError, match=r"step_00000002, whole; 2 step\(s\) since then are lost") as caught:
        train(run)
    assert os.strerror(code) in str(caught.value)
    assert caught.value.exit_code == 4
    run.close()


def test_errors_of_other_files_are_left_alone(tmp_path):
    run = run_of(tmp_path / "run")
    run.observers.append(lambda row, _: Path("/nonexistent/anywhere").read_text())
    with pytest.raises(FileNotFoundError):
        train(run)
    run.close()


def test_a_folder_that_cannot_be_written_is_said_before_the_first_step(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    recipe = toml_of(tmp_path / "file" / "run", tmp_path / "r.toml")
    assert main(["train", str(recipe)]) == 4
    assert "name a folder that is" in capsys.readouterr().err
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o555)
        assert main(["train", str(recipe), "--folder", str(tmp_path / "closed" / "run")]) == 4
    elif Path("/sys").is_dir():  # no permission stops root but the kernel's own
        assert main(["train", str(recipe), "--folder", "/sys/anygrpo-run"]) == 4


def test_a_log_that_cannot_be_written_costs_no_step(tmp_path, capsys):
    run = run_of(tmp_path / "run", "--training.steps", "2")
    (tmp_path / "run" / "log.txt").mkdir()
    run.folder.log("a line")
    train(run)
    run.close()
    assert "a line" in capsys.readouterr().err


def test_a_closed_terminal_saves_as_ctrl_c_does(tmp_path):
    training = {"steps": 100000, "checkpoint_every": 100000}
    process = start(str(toml_of(tmp_path / "run", tmp_path / "r.toml", training=training)))
    reached(tmp_path / "run", 3, process)
    process.send_signal(signal.SIGHUP)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130, said
    newest = checkpoint.newest(tmp_path / "run" / "checkpoints")
    assert checkpoint.step_of(newest) == read_rows(tmp_path / "run" / "metrics.jsonl")[0][-1]["step"] + 1


def test_under_nohup_a_closed_terminal_stops_nothing(tmp_path):
    run = run_of(tmp_path / "run", "--training.steps", "3")
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    run.observers.append(lambda row, _: os.kill(os.getpid(), signal.SIGHUP))
    try:
        train(run)
    finally:
        signal.signal(signal.SIGHUP, previous)
    run.close()
    assert run.step == 3


def slow(run, at: int, where: str) -> None:
    """Step `at` hangs: while it samples, or after its update."""
    if where == "sampling":
        true = run.policy.sample

        def sample(*arguments):
            if run.step == at:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)
            return true(*arguments)

        run.policy.sample = sample
    else:
        step = run.apply

        def apply(row):
            step(row)
            if run.step == at:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)

        run.apply = apply


@pytest.mark.parametrize(("where", "saved"), [("sampling", 5), ("update", 4)])
def test_a_step_that_outlasts_the_grace_time_is_given_up(tmp_path, monkeypatch, where, saved):
    """Before its update the state is saved as it was; after it the checkpoint before stands. Both resume exactly."""
    from anygrpo.train.build import resumed_run

    options = {"training": {"steps": 8, "checkpoint_every": 2}, "algorithm": {"prompts_per_step": 8, "group_size": 8,
               "advantage": "running"}}  # fmt: skip
    whole = run_of(tmp_path / "whole", **options)
    train(whole)
    whole.close()
    monkeypatch.setenv(GRACE, "0.2")
    run = run_of(tmp_path / "run", **options)
    slow(run, 5, where)
    began = time.monotonic()
    with pytest.raises(Interrupted, match="grace time is over"):
        train(run)
    run.close()
    assert time.monotonic() - began < 40
    assert checkpoint.step_of(checkpoint.newest(tmp_path / "run" / "checkpoints")) == saved
    monkeypatch.delenv(GRACE)
    again = resumed_run(tmp_path / "run")
    train(again)
    again.close()
    assert torch.equal(again.policy.net.weight, whole.policy.net.weight)


@pytest.mark.parametrize("text", ["soon", "-1", "0", "nan", "inf"])
def test_a_grace_time_that_cannot_be_meant_is_refused(monkeypatch, text):
    monkeypatch.setenv(GRACE, text)
    with pytest.raises(ConfigError, match="ANYGRPO_GRACE_SECONDS"):
        grace_seconds()


def test_requeued_as_slurm_does_it(tmp_path):
    """SIGTERM, SIGKILL a while later, the same script again: as docs/reliability.md has it."""
    training = {"steps": 300, "checkpoint_every": 50}
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml", training=training)
    words, ends = [str(recipe)], []
    for row in (5, 40, None):
        process = start(*words, **{GRACE: "20"})
        if row is not None:
            reached(tmp_path / "run", row, process)
            process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
        ends.append(process.returncode)
        words = ["--resume", str(tmp_path / "run")]
    assert ends[-1] == 0
    assert set(ends[:-1]) <= {0, 130}
    whole = run_of(tmp_path / "whole", training=training)
    train(whole)
    whole.close()
    one, two = (checkpoint.load(checkpoint.newest(tmp_path / n / "checkpoints"))[0] for n in ("run", "whole"))
    assert all(torch.equal(one[name], two[name]) for name in two)


def test_the_end_of_memory_under_ulimit_is_said(tmp_path):
    """RLIMIT_AS just above what the process has; then samples that do not fit."""
    program = f"""
import resource, sys
sys.path.insert(0, {SUPPORT!r})
from pathlib import Path
from runs import run_of
from anygrpo.errors import TrainingError
from anygrpo.train.loop import train
import torch
run = run_of(Path({str(tmp_path / "run")!r}), training={{"steps": 6, "checkpoint_every": 2}})
true = run.policy.sample
def sample(*a):
    if run.step == 5:
        torch.ones(1 << 40)
    return true(*a)
run.policy.sample = sample
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + (1 << 29)
resource.setrlimit(resource.RLIMIT_AS, (size, size))
try:
    train(run)
except TrainingError as error:
    print(error)
    sys.exit(error.exit_code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 4, done.stderr
    assert "out of memory" in done.stdout
    assert "step_00000004, whole; 1 step(s) since then are lost" in done.stdout


def test_memory_that_ends_without_torchs_own_error_halves_the_block(tmp_path):
    run = run_of(tmp_path / "run", "--training.steps", "2")
    true, seen = run.policy.evaluate, []

    def evaluate(samples, times, want=frozenset()):
        seen.append(len(samples["x"]))
        if len(samples["x"]) > 8:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9")
        return true(samples, times, want)

    run.policy.evaluate = evaluate
    train(run)
    run.close()
    assert min(seen) <= 8 < max(seen)


def slept(folder, seconds):
    from anygrpo.train import parallel

    run = run_of(folder, "--training.steps", "3")
    if parallel.rank() == 1:
        run.observers.append(lambda row, _: time.sleep(seconds))
    train(run)
    run.close()
    return run.policy.net.weight.tolist()


@pytest.mark.cpu
def test_a_slow_rank_changes_nothing(tmp_path):
    quick = on_ranks(2, slept, tmp_path / "quick", 0.0, seconds=120)
    late = on_ranks(2, slept, tmp_path / "late", 0.5, seconds=120)
    assert quick == late
    assert quick[0] == quick[1]


def failing_disk(folder):
    from anygrpo.train import parallel

    def act():
        if parallel.rank() == 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    try:
        snapshot.together(act)
    except OSError as error:
        return error.errno, str(error)
    return None


@pytest.mark.cpu
def test_a_disk_full_on_one_rank_is_said_by_all(tmp_path):
    for code, text in on_ranks(2, failing_disk, tmp_path):
        assert code == errno.ENOSPC
        assert "rank 1" in text
