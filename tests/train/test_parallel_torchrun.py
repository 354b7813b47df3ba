"""`torchrun -m anygrpo train recipe.toml`, as a person starts it: results, errors and a killed rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runs import TOYS, toml_of

from anygrpo.train import checkpoint
from anygrpo.train.build import resumed_run
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train

pytestmark = pytest.mark.cpu

FAULTY = """
import os, time
from pathlib import Path
from toys import BestArm

class Raises(BestArm):
    def score(self, prompts, outputs):
        if os.environ["RANK"] == "1":
            raise OSError("the reward server of rank 1 is gone")
        return super().score(prompts, outputs)

class Slow(BestArm):
    def score(self, prompts, outputs):
        Path(__file__).with_name(f"pid{os.environ['RANK']}").write_text(str(os.getpid()))
        time.sleep(0.05)
        return super().score(prompts, outputs)
"""


def start(ranks: int, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    command += ["--log-dir", str(Path(arguments[0]).with_name("torchrun"))]  # not left in the system's place
    return subprocess.Popen(
        [*command, "--nproc-per-node", str(ranks), "-m", "anygrpo", "train", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"PYTHONPATH": str(TOYS.parent), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def faulty(folder: Path, name: str) -> dict:
    (folder / "faulty.py").write_text(FAULTY)
    return {"kind": "python", "function": f"{folder / 'faulty.py'}:{name}"}


@pytest.mark.slow
def test_two_processes_train_one_policy(tmp_path):
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml", algorithm={"prompts_per_step": 9, "group_size": 8},
                     training={"steps": 40}, optimizer={"learning_rate": 0.05})  # fmt: skip
    process = start(2, str(recipe))
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out
    rows, broken = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert broken == 0
    assert [row["step"] for row in rows] == [-1, *range(40)]
    assert rows[-1]["samples/seen"] == 40 * 9 * 8
    assert rows[-1]["eval/prompts"] == 200
    assert rows[-1]["eval/reward"] > rows[0]["eval/reward"] + 0.2
    assert out.count("run folder:") == 1


def test_an_exception_on_one_rank_ends_all_with_its_message(tmp_path):
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml", task=faulty(tmp_path, "Raises"))
    process = start(2, str(recipe))
    out, _ = process.communicate(timeout=240)
    assert process.returncode != 0
    assert "the reward server of rank 1 is gone" in out


@pytest.mark.slow
def test_a_killed_rank_ends_the_run_and_leaves_a_checkpoint_to_go_on_from(tmp_path, monkeypatch):
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml", task=faulty(tmp_path, "Slow"),
                     training={"steps": 100000, "checkpoint_every": 2})  # fmt: skip
    process = start(2, str(recipe))
    deadline = time.monotonic() + 240
    while checkpoint.newest(tmp_path / "run" / "checkpoints") is None and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    os.kill(int((tmp_path / "pid1").read_text()), signal.SIGKILL)
    out, _ = process.communicate(timeout=240)
    assert process.returncode != 0, out
    newest = checkpoint.newest(tmp_path / "run" / "checkpoints")
    assert newest is not None
    step = checkpoint.step_of(newest)
    monkeypatch.setenv("RANK", "0")
    run = resumed_run(tmp_path / "run", ["--training.steps", str(step + 2)])
    assert run.step == step
    train(run)
    run.close()
    assert [row["step"] for row in read_rows(tmp_path / "run" / "metrics.jsonl")[0]] == [-1, *range(step + 2)]
