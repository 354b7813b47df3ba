"""Nothing is lost: a run killed anywhere and resumed equals one that was never interrupted, bit for bit on CPU."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from runs import cut_after, run_of, toml_of

from anygrpo.errors import ConfigError, DataError
from anygrpo.train import checkpoint, snapshot
from anygrpo.train.build import resumed_run
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train

VOLATILE = ("time/", "throughput/", "memory/")
STAGES = [
    {"name": "warm", "method": "supervised", "steps": 7},
    {
        "name": "rl",
        "method": "grpo",
        "steps": 13,
        "algorithm": {"beta": 0.05, "minibatches": 2, "advantage": "running"},
    },
]


def steady(folder: Path) -> list[dict]:
    rows, broken = read_rows(folder / "metrics.jsonl")
    assert broken == 0
    return [{k: v for k, v in row.items() if not k.startswith(VOLATILE)} for row in rows]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    newest = checkpoint.newest(folder / "checkpoints")
    assert newest is not None
    return checkpoint.load(newest)[0]


def same(a: Path, b: Path) -> None:
    assert steady(a) == steady(b)
    for name, value in weights(a).items():
        torch.testing.assert_close(weights(b)[name], value, rtol=0, atol=0)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    run = run_of(folder, stages=STAGES, evaluation={"every": 5}, training={"checkpoint_every": 3})
    run.evaluate_start()
    train(run)
    run.close()
    return folder


@pytest.mark.parametrize("stop_at", [1, 3, 6, 7, 8, 11, 19])
def test_a_run_stopped_at_any_step_resumes_exactly(uninterrupted, tmp_path, stop_at):
    run = run_of(tmp_path / "run", stages=STAGES, evaluation={"every": 5}, training={"checkpoint_every": 3})
    run.evaluate_start()
    cut_after(run, stop_at)
    again = resumed_run(tmp_path / "run")
    if again.step == 0:
        again.evaluate_start()
    train(again)
    again.close()
    same(uninterrupted, tmp_path / "run")


def start(recipe: Path, *more: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "anygrpo", "train", *(more or (str(recipe),))],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "support")},
    )  # fmt: skip


def test_sigkill_and_resume_equals_uninterrupted(tmp_path):
    training = {"steps": 60, "checkpoint_every": 5}
    whole = toml_of(tmp_path / "whole", tmp_path / "whole.toml", training=training)
    assert start(whole).wait(120) == 0
    killed = toml_of(tmp_path / "killed", tmp_path / "killed.toml", training=training)
    process = start(killed)
    target = random.Random(0).randrange(8, 40)
    while len((process.stdout.readline() or "").split("/60")) and not _reached(tmp_path / "killed", target):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert start(killed, "--resume", str(tmp_path / "killed")).wait(120) == 0
    same(tmp_path / "whole", tmp_path / "killed")


def _reached(folder: Path, step: int) -> bool:
    file = folder / "metrics.jsonl"
    return file.is_file() and sum(1 for _ in file.open()) > step


def test_ctrl_c_saves_and_stops_with_its_exit_code(tmp_path):
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml", training={"steps": 100000, "checkpoint_every": 100000})
    process = start(recipe)
    while not _reached(tmp_path / "run", 5):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    assert "--resume" in out
    newest = checkpoint.newest(tmp_path / "run" / "checkpoints")
    assert newest is not None
    last = steady(tmp_path / "run")[-1]["step"]
    assert checkpoint.load(newest)[1]["step"] == last + 1


def test_a_checkpoint_cut_in_half_is_passed_over(uninterrupted, tmp_path):
    import shutil

    shutil.copytree(uninterrupted, tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    newest = checkpoint.newest(folder)
    data = (newest / "state.json").read_bytes()
    (newest / "state.json").write_bytes(data[: len(data) // 2])
    assert checkpoint.newest(folder) != newest
    with pytest.raises(DataError, match="damaged"):
        checkpoint.load(newest)
    again = resumed_run(tmp_path / "run")
    train(again)
    again.close()
    same(uninterrupted, tmp_path / "run")


def test_a_corrupt_metrics_line_is_dropped_on_resume(uninterrupted, tmp_path):
    import shutil

    shutil.copytree(uninterrupted, tmp_path / "run")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99, "rew')
    resumed_run(tmp_path / "run").close()
    same(uninterrupted, tmp_path / "run")


def test_a_full_disk_while_saving_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    run = run_of(tmp_path / "run")
    run.enter(0)
    snapshot.save(run)
    before = checkpoint.newest(run.folder.checkpoints)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "_seal", full)
    run.step = 5
    with pytest.raises(OSError, match="No space"):
        snapshot.save(run)
    assert checkpoint.newest(run.folder.checkpoints) == before
    assert [p.name for p in run.folder.checkpoints.iterdir()] == [before.name]


def test_resuming_a_finished_run_leaves_its_checkpoint_as_it_is(tmp_path):
    run = run_of(tmp_path / "run", "--training.steps", "5")
    train(run)
    run.close()
    last = tmp_path / "run" / "checkpoints" / "step_00000005"
    before = (last / "manifest.json").read_text()
    again = resumed_run(tmp_path / "run")
    train(again)
    again.close()
    assert (last / "manifest.json").read_text() == before
    assert checkpoint.load(last)[1]["updater"] is not None


def test_two_runs_cannot_share_a_folder(tmp_path):
    run = run_of(tmp_path / "run")
    with pytest.raises(ConfigError, match="another process"):
        run_of(tmp_path / "run")
    run.close()


def test_a_finished_folder_is_not_overwritten(uninterrupted):
    with pytest.raises(ConfigError, match="already holds a run"):
        run_of(uninterrupted)


def test_a_folder_without_a_run_cannot_be_resumed(tmp_path):
    with pytest.raises(DataError, match="no run"):
        resumed_run(tmp_path)


def test_a_clock_that_jumps_changes_nothing_but_times(uninterrupted, tmp_path, monkeypatch):
    ticks = iter(range(10**9, 0, -7))
    monkeypatch.setattr("anygrpo.train.run.time.perf_counter", lambda: float(next(ticks)))
    run = run_of(tmp_path / "run", stages=STAGES, evaluation={"every": 5}, training={"checkpoint_every": 3})
    run.evaluate_start()
    train(run)
    run.close()
    same(uninterrupted, tmp_path / "run")


def test_the_run_folder_says_what_was_run(uninterrupted):
    environment = json.loads((uninterrupted / "environment.json").read_text())
    assert environment["packages"]["torch"] == torch.__version__.split("+")[0] or torch.__version__
    assert 'kind = "python"' in (uninterrupted / "config.toml").read_text()
    assert (uninterrupted / "samples" / "step_00000010.jsonl").is_file()


def test_a_resume_under_the_librarys_names_is_exact(uninterrupted, tmp_path):
    """policy.safetensors bears the names that `saved_names` gives; a run resumes from it as from its own."""
    from runs import TOYS

    from anygrpo.core.tensor_files import read_tensors

    policy = {"kind": "python", "function": f"{TOYS}:renamed"}
    training = {"checkpoint_every": 3}
    run = run_of(tmp_path / "run", stages=STAGES, evaluation={"every": 5}, training=training, policy=policy)
    run.evaluate_start()
    cut_after(run, 9)
    newest = checkpoint.newest(tmp_path / "run" / "checkpoints")
    assert set(read_tensors(newest / "policy.safetensors")) == {"unet.to_q.weight", "bias"}
    assert "unet.to_q.weight/exp_avg" in read_tensors(newest / "optimizer.safetensors")
    assert set(weights(tmp_path / "run")) == {"weight", "bias"}
    again = resumed_run(tmp_path / "run")
    train(again)
    again.close()
    same(uninterrupted, tmp_path / "run")


def test_a_changed_decay_of_the_moving_statistics_holds_from_the_resumed_step_on(tmp_path):
    running = {"prompts_per_step": 4, "group_size": 4, "advantage": "running"}
    run = run_of(tmp_path / "run", algorithm=running, training={"checkpoint_every": 1, "steps": 6})
    cut_after(run, 2)
    again = resumed_run(tmp_path / "run", ["--algorithm.running-decay", "0.5"])
    train(again)
    again.close()
    weight = 0.0
    for decay in (0.99, 0.99, 0.5, 0.5, 0.5, 0.5):  # the third step was cut off before its checkpoint
        weight = decay * weight + 1 - decay
    assert again.memory.weight == pytest.approx(weight)
