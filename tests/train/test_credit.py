"""Credit of turns, from the rollout to the rows of an optimizer step."""

import math
from dataclasses import replace

import pytest
import torch
from runs import run_of
from stages import stage_of

from anygrpo.core.rollout import Rollout
from anygrpo.errors import ConfigError
from anygrpo.train.batches import minibatches, prepare, weigh
from anygrpo.train.credit import credited
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


# --- by hand


def credited_by_sum(made, **settings):
    """With advantages that are the rewards themselves where they are valid."""
    stage = stage_of(credit="turns", **settings)
    return credited(
        made, made.mask & made.valid[..., None], stage.algorithm, lambda x, valid: torch.where(valid, x, 0.0)
    )


def test_rewards_of_turns_to_go():
    """First sample: 1, then 0 and what is left of the total 5, so 4: to go 5 and 4. One turn of 0: the total, 3."""
    made = rollout(rewards=torch.tensor([[5.0, 3.0], [2.0, 0.0]]))
    found = credited_by_sum(made, discount=1.0)
    assert found[0].tolist() == [[5.0, 5.0, 4.0], [3.0, 3.0, 3.0]]
    half = credited_by_sum(made, discount=0.5)
    assert half[0, 0].tolist() == [1 + 0.5 * 4, 1 + 0.5 * 4, 4.0]


def test_the_environments_weight_is_in_force():
    made = rollout(rewards=torch.tensor([[5.0, 3.0], [2.0, 0.0]]), weights={"environment": 2.0})
    assert credited_by_sum(made, discount=0.5)[0, 0].tolist() == [2 + 0.5 * 3, 2 + 0.5 * 3, 3.0]


@pytest.mark.parametrize("columns", [1, 2, 4])
def test_turns_that_nothing_was_paid_for(columns):
    """However many columns the payments have: the total is the last turn's."""
    made = rollout(
        turn_rewards=torch.full((2, 2, columns), NAN), components={}, rewards=torch.tensor([[5.0, 3.0], [2.0, 1.0]])
    )
    found = credited_by_sum(made, discount=0.5)
    assert found[0].tolist() == [[2.5, 2.5, 5.0], [3.0] * 3]
    one = replace(made, turn=torch.zeros(2, 2, 3, dtype=torch.int16))
    assert credited_by_sum(one, discount=0.5)[0].tolist() == [[5.0] * 3, [3.0] * 3]


def test_masked_decisions_have_no_credit():
    made = rollout(rewards=torch.tensor([[5.0, 3.0], [2.0, 0.0]]), valid=torch.tensor([[True, False], [True, True]]))
    assert credited_by_sum(made)[0, 1].tolist() == [0.0] * 3


def in_parts(paid, **given):
    turn = torch.tensor([[[0, 1, 1], [0, 0, 1]]], dtype=torch.int16)
    made = Rollout.of(
        {},
        torch.zeros(1, 2, 3),
        torch.ones(1, 2, 3, dtype=torch.bool),
        turn=turn,
        turn_rewards=torch.tensor(paid),
        **given,
    )
    stage = stage_of(credit="parts")
    seen = []

    def compare(x, valid):
        seen.append((x.tolist(), valid.tolist()))
        return torch.where(valid, x, 0.0)

    return credited(made, made.mask, stage.algorithm, compare), seen


def test_each_part_is_compared_by_itself():
    found, seen = in_parts([[[1.0, 2.0], [3.0, NAN]]])
    assert found[0].tolist() == [[1.0, 2.0, 2.0], [3.0, 3.0, 0.0]]
    assert seen == [([[1.0, 3.0]], [[True, True]]), ([[2.0, 0.0]], [[True, False]])]


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="the task pays no parts"):
        in_parts([[[NAN, NAN], [NAN, NAN]]])
    with pytest.raises(ConfigError, match="the task pays 3 parts, and the policy decides 2"):
        in_parts([[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]])
