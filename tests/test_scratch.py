"""Temporary folders go when the work ends, whatever ends it; what a killed process left goes with the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from runs import toml_of

from anygrpo.cli.ending import Ended, cleaned_up
from anygrpo.cli.main import main
from anygrpo.scratch import Scratch, sweep


@pytest.fixture
def place(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_it_goes_at_the_end_of_a_block_and_with_its_object(place):
    with Scratch("check") as folder:
        (folder / "a").mkdir()
        assert list(place.iterdir()) == [folder]
    assert list(place.iterdir()) == []
    with pytest.raises(KeyError), Scratch("check"):
        raise KeyError
    assert list(place.iterdir()) == []
    held = Scratch("vllm")
    assert held.path.is_dir()
    del held
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_goes_and_what_a_living_one_holds_stays(place):
    code = "import time\nfrom anygrpo.scratch import Scratch\ns = Scratch('check')\nprint(s.path, flush=True)\n"
    code += "time.sleep(60)"
    two = []
    try:
        for _ in range(2):
            two.append(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True))
        folders = [process.stdout.readline().strip() for process in two]
        two[0].kill()
        two[0].wait()
        others = [place / "anygrpo-mine", place / "anygrpo-check-abcdefgh.tmp.bak", place / "tmpabcdefgh"]
        for folder in others:
            folder.mkdir()
        sweep()
        assert os.path.isdir(folders[0])  # so young that it may not have been locked yet
        for folder in [*folders, *others]:
            os.utime(folder, (0, time.time() - 60))
        sweep()
        assert not os.path.exists(folders[0])
        assert os.path.isdir(folders[1])
        assert all(folder.is_dir() for folder in others)
    finally:
        for process in two:
            process.kill()
            process.wait()
            process.stdout.close()


def test_a_forked_child_does_not_take_its_parents_folder_along(place):
    with Scratch("check") as folder:
        child = os.fork()
        if child == 0:
            try:
                sys.exit(0)
            finally:
                import weakref

                weakref.finalize._exitfunc()
                os._exit(0)
        os.waitpid(child, 0)
        assert folder.is_dir()


def test_a_signal_is_an_exception_inside_and_as_before_outside():
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(Ended, match="ended by SIGTERM") as raised, cleaned_up():
            signal.raise_signal(signal.SIGTERM)
        assert raised.value.number == signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_commands_leave_nothing(place, tmp_path, capsys):
    import gzip

    recipe = toml_of(tmp_path / "run", tmp_path / "recipe.toml", training={"steps": 2})
    run = str(tmp_path / "run")
    (tmp_path / "log.jsonl.gz").write_bytes(gzip.compress(b'{"step": 1, "reward": 0.5}\n{"step": 2, "reward": 1}\n'))
    for words in (
        ["train", str(recipe), "--quiet"],
        ["check", str(recipe), "--json"],
        ["export", run],
        ["evaluate", run, f"{run}/export", "--json"],
        ["report", run],
        ["verify", run],
        ["doctor", str(tmp_path / "log.jsonl.gz")],
        ["compare", run, run],
    ):
        assert main(words) in (0, 5), (words, capsys.readouterr())
        left = [file.name for file in place.iterdir() if not file.name.startswith("torchinductor_")]  # torch's cache
        assert left == [], words


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_command_that_is_ended_leaves_nothing(place, tmp_path, number):
    """In the midst of its work, a score that takes half a minute."""
    slow = "import time\nfrom toys import BestArm\nclass Slow(BestArm):\n"
    slow += "    def score(self, *a):\n        time.sleep(30)\n"
    (tmp_path / "slow.py").write_text(slow)
    recipe = toml_of(
        tmp_path / "run", tmp_path / "r.toml", task={"kind": "python", "function": f"{tmp_path}/slow.py:Slow"}
    )
    support = os.path.join(os.path.dirname(__file__), "support")
    process = subprocess.Popen(
        [sys.executable, "-m", "anygrpo", "check", str(recipe)], stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": support},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not list(place.iterdir()) and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        assert list(place.iterdir()), process.poll() is not None and process.communicate()[1]
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + number, said
    assert list(place.iterdir()) == []


def test_an_interrupt_within_executed_text_ends_as_any_other(tmp_path):
    """CPython remembers one, and would kill the process by the signal after it was handled."""
    (tmp_path / "task.py").write_text('exec("raise KeyboardInterrupt")\n')
    recipe = toml_of(
        tmp_path / "run", tmp_path / "r.toml", task={"kind": "python", "function": f"{tmp_path}/task.py:Task"}
    )
    done = subprocess.run([sys.executable, "-m", "anygrpo", "check", str(recipe)], capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (130, "anygrpo: interrupted")
