"""A run none of whose first samples can be used ends; one that has learnt goes on."""

from __future__ import annotations

import json

import pytest
import torch

from anygrpo.cli.main import main
from anygrpo.core.rollout import Rollout
from anygrpo.errors import TrainingError
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
