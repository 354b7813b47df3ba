"""A run none of whose first samples can be used ends; one that has learnt goes on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from runs import run_of

from anygrpo.cli.main import main
from anygrpo.core.rollout import Rollout
from anygrpo.errors import TrainingError
from anygrpo.train.build import resumed_run
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train
from anygrpo.train.unusable import STEPS, Unusable


def rollout(valid, why="no number"):
    valid = torch.tensor([valid])
    zeros = torch.zeros(*valid.shape, 1)
    reasons = {(0, g): why for g, good in enumerate(valid[0].tolist()) if not good}
    return Rollout({}, zeros, zeros.bool(), zeros[..., 0], valid, valid, zeros.long(), reasons=reasons)


def test_it_ends_after_five_steps_with_the_commonest_reason():
    unusable = Unusable()
    unusable.see(rollout([False], why="a rare one"))
    for _ in range(STEPS - 2):
        unusable.see(rollout([False, False]))
    with pytest.raises(TrainingError, match=r"first 5 steps could be used: no number, 8 times"):
        unusable.see(rollout([False, False]))


def test_one_good_sample_is_enough_for_all_that_follows():
    unusable = Unusable()
    unusable.see(rollout([False, True]))
    for _ in range(3 * STEPS):
        unusable.see(rollout([False, False]))


def test_what_learns_from_something_else_or_is_resumed_goes_on():
    beside, resumed = Unusable(), Unusable()
    resumed.begin(fresh=False)
    for _ in range(2 * STEPS):
        beside.see(rollout([False, False]), elsewhere=True)
        resumed.see(rollout([False, False]))
    first = Unusable()
    first.begin(fresh=True)
    for _ in range(STEPS - 1):
        first.see(rollout([False]))
    with pytest.raises(TrainingError):
        first.see(rollout([False]))


def spoilt(run):
    """Nothing can be scored from step 8 to step 13."""
    task = run.stages[0].task
    score = task.score

    def scored(prompts, outputs):
        made = score(prompts, outputs)
        bad = 8 <= run.step < 14
        return replace(made, valid=torch.zeros_like(made.rewards, dtype=torch.bool)) if bad else made

    task.score = scored
    return run


def test_a_bad_hour_after_a_resume_is_data_as_it_is_without_one(tmp_path):
    run = spoilt(run_of(tmp_path / "run", training={"steps": 16}))
    run.observers.append(lambda row, run: run.stop("cut") if row["step"] == 7 else None)
    train(run)
    run.close()
    run = spoilt(resumed_run(tmp_path / "run"))
    train(run)
    run.close()
    rows, _ = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert rows[-1]["step"] == 15
    assert [row["step"] for row in rows if row.get("invalid/share") == 1.0] == [8, 9, 10, 11, 12, 13]


def test_a_task_of_ones_own_that_gives_no_number_stops_the_run(tmp_path, capsys, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from toys import Bandit, BestArm\n"
        "def policy(seed): return Bandit(seed)\n"
        "def task(seed): return BestArm(seed, broken='every')\n"
    )
    (tmp_path / "r.toml").write_text(
        'name = "n"\n[policy]\nkind = "python"\nfunction = "mine.py:policy"\n[task]\nkind = "python"\n'
        'function = "mine.py:task"\n[training]\nsteps = 40\n[evaluation]\nat_start = false\n'
    )
    monkeypatch.chdir(tmp_path)
    assert main(["train", "r.toml", "--folder", "run"]) == 4
    said = capsys.readouterr().err
    assert "no sample of the first 5 steps could be used" in said
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(STEPS))
