"""Faults that a run survives, beyond those in test_resume.py and test_loop.py. docs/reliability.md lists all."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
from ranks import begun
from runs import run_of

from anygrpo.errors import TrainingError
from anygrpo.train import checkpoint
from anygrpo.train.build import resumed_run
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train

pytestmark = pytest.mark.cpu

VOLATILE = ("time/", "throughput/", "memory/")
STEPS = 24


def life(folder: Path, training: dict) -> None:
    """A process that begins the run, or goes on with it, until it ends or is killed."""
    torch.set_num_threads(1)
    run = resumed_run(folder) if (folder / "config.toml").is_file() else run_of(folder, training=training)
    if run.step == 0:
        run.evaluate_start()
    train(run)
    run.close()


def born(*arguments: object) -> BaseProcess:
    return begun(life, *arguments)


def steady(folder: Path) -> list[dict]:
    rows, broken = read_rows(folder / "metrics.jsonl")
    assert broken == 0
    return [{k: v for k, v in row.items() if not k.startswith(VOLATILE)} for row in rows]


def killed_and_resumed(tmp_path: Path, moments: int, seed: int) -> None:
    """Kill one run at random moments, again and again, until it ends: it must equal an undisturbed one."""
    training = {"steps": STEPS, "checkpoint_every": 3}
    life(tmp_path / "whole", training)
    rng, metrics = random.Random(seed), tmp_path / "run" / "metrics.jsonl"
    process, kills = born(tmp_path / "run", training), 0
    for kill in range(moments):
        reach = STEPS * (kill + 1) // (moments + 1)
        while process.is_alive() and (not metrics.is_file() or sum(1 for _ in metrics.open()) <= reach):
            time.sleep(0.005)
        time.sleep(rng.random() * 0.02)
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        process = born(tmp_path / "run", training)
    process.join(120)
    assert process.exitcode == 0
    assert kills >= moments // 2
    assert steady(tmp_path / "run") == steady(tmp_path / "whole")
    ends = [checkpoint.load(checkpoint.newest(tmp_path / name / "checkpoints"))[0] for name in ("run", "whole")]
    for name, value in ends[1].items():
        torch.testing.assert_close(ends[0][name], value, rtol=0, atol=0)


def test_sigkill_at_random_moments(tmp_path):
    killed_and_resumed(tmp_path, 3, seed=1)


@pytest.mark.slow
def test_sigkill_at_twenty_random_moments(tmp_path):
    killed_and_resumed(tmp_path, 20, seed=2)


def poisoned(run, value: float, at: set[int]) -> None:
    """The training pass returns `value` in one log-prob of each pass of the steps `at`."""
    true = run.policy.evaluate

    def evaluate(samples, times, want=frozenset()):
        made = true(samples, times, want)
        if run.step in at:
            spoilt = made.log_probs.clone()
            spoilt[0, 0] = value
            return replace(made, log_probs=spoilt + 0 * made.log_probs)
        return made

    run.policy.evaluate = evaluate


def test_a_nan_in_the_log_probs_costs_one_update(tmp_path):
    run = run_of(tmp_path / "run", "--training.steps", "4")
    poisoned(run, float("nan"), {1})
    weights = []
    run.observers.append(lambda row, run: weights.append(run.policy.net.weight.detach().clone()))
    train(run)
    run.close()
    rows = read_rows(run.folder.metrics)[0]
    assert [row["steps_refused"] for row in rows] == [0, 1, 1, 1]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])
    assert run.version == 3
    assert all(torch.isfinite(w).all() for w in weights)


def test_log_probs_that_stay_nan_end_the_run_with_a_cause(tmp_path):
    run = run_of(tmp_path / "run", "--training.steps", "50")
    poisoned(run, float("nan"), set(range(50)))
    before = run.policy.net.weight.detach().clone()
    with pytest.raises(TrainingError, match="not finite"):
        train(run)
    run.close()
    assert torch.equal(run.policy.net.weight, before)


def test_a_reward_that_raises_leaves_the_last_checkpoint(tmp_path):
    run = run_of(tmp_path / "run", training={"steps": 10, "checkpoint_every": 2})
    true, calls = run.stages[0].task.score, iter(range(100))

    def score(prompts, outputs):
        if next(calls) == 5:
            raise RuntimeError("reward model is gone")
        return true(prompts, outputs)

    run.stages[0].task.score = score
    with pytest.raises(RuntimeError, match="reward model is gone"):
        train(run)
    run.close()
    newest = checkpoint.newest(run.folder.checkpoints)
    assert newest is not None
    assert checkpoint.step_of(newest) == 4


def test_half_written_checkpoint_folders_are_never_resumed_from(tmp_path):
    run = run_of(tmp_path / "run", training={"steps": 4, "checkpoint_every": 2})
    train(run)
    run.close()
    folder = run.folder.checkpoints
    good = checkpoint.newest(folder)
    left = folder / f".step_00000009.{os.getpid()}"  # a process killed between writing and renaming
    left.mkdir()
    (left / "state.json").write_bytes(b"half")
    (folder / "step_00000008").mkdir()
    assert checkpoint.newest(folder) == good
