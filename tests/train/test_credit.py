"""Credit of turns, from the rollout to the rows of an optimizer step."""

import math

import pytest
import torch
from runs import run_of

from anygrpo.core.rollout import Rollout
from anygrpo.errors import ConfigError
from anygrpo.train.batches import minibatches, prepare, weigh
from anygrpo.train.measure import advantage_metrics
from anygrpo.train.stages import numbers_at

NAN = math.nan


def rollout(**given):
    """Two prompts, two samples, three decisions: of the first sample of each prompt the last is a second turn's."""
    turn = torch.tensor([[[0, 0, 1], [0, 0, 0]]] * 2, dtype=torch.int16)
    paid = torch.tensor([[[1.0, 0.0], [0.0, NAN]], [[0.0, 2.0], [0.0, NAN]]])
    total = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    mask = torch.ones(2, 2, 3, dtype=torch.bool)
    values = {"rewards": total, "turn": turn, "turn_rewards": paid, "components": {"environment": total}} | given
    return Rollout.of({"x": torch.zeros(2, 2, 3)}, torch.zeros(2, 2, 3), mask, **values)


def prepared(tmp_path, made, *flags):
    run = run_of(tmp_path / "run", "--algorithm.advantage", "centred", *flags)
    stage = run.stages[0].stage
    out = prepare(made, stage, numbers_at(stage, 0, 10), None)
    run.close()
    return out, stage


def test_each_decision_has_its_turns_advantage(tmp_path):
    out, stage = prepared(tmp_path, rollout(), "--algorithm.credit", "turns")
    wanted = [[[0.5, 0.5, 0.0], [-0.5] * 3], [[1.0, 1.0, 0.0], [-1.0] * 3]]
    assert out.advantages.tolist() == wanted
    batch = weigh(out, stage)
    assert batch.advantages.tolist() == [row for group in wanted for row in group]
    assert advantage_metrics(out)["advantage/abs_max"] == 1.0
    (part,) = minibatches(out, stage, 0)
    assert torch.equal(part.advantages, out.advantages)
    discounted, _ = prepared(tmp_path / "b", rollout(), "--algorithm.credit", "turns", "--algorithm.discount", "0.5")
    assert discounted.advantages[1].tolist() == [[0.5, 0.5, 0.0], [-0.5] * 3]


def test_outcome_is_as_it_was(tmp_path):
    out, stage = prepared(tmp_path, rollout())
    assert out.advantages.tolist() == [[0.5, -0.5], [1.0, -1.0]]
    assert weigh(out, stage).advantages.shape == (4, 1)


def test_turns_stay_with_their_samples():
    both = rollout().joined(rollout(turn_rewards=torch.full((2, 2, 3), 7.0)))
    assert both.turn_rewards.shape == (4, 2, 3)
    kept = both.groups(torch.tensor([False, True, True, False]))
    assert kept.turn_rewards[0, 0].tolist() == [0.0, 2.0, 0.0]
    assert kept.turn_rewards[1, 0].tolist() == [7.0] * 3
    assert torch.equal(kept.light().turn, kept.turn)
    plain = Rollout.of({}, torch.zeros(1, 2, 3), torch.ones(1, 2, 3))
    assert plain.turn.tolist() == [[[0] * 3] * 2]
    assert bool(plain.turn_rewards.isnan().all())


def test_what_an_environment_pays_must_be_a_reward(tmp_path):
    with pytest.raises(ConfigError, match='kind = "environment"'):
        prepared(tmp_path, rollout(components={}), "--algorithm.credit", "process")
    with pytest.raises(ConfigError, match="compares the parts"):
        run_of(tmp_path / "c", "--algorithm.advantage", "gdpo", "--algorithm.credit", "turns")
