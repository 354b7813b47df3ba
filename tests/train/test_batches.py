"""From a scored rollout to rows with weights: every number by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from stages import numbers_of, stage_of
from toys import Bandit

from anygrpo.algorithm.statistics import RunningState
from anygrpo.core.rollout import Batch, Rollout
from anygrpo.errors import ConfigError
from anygrpo.train import batches
from anygrpo.train.batches import kept_groups, minibatches, needed_rows, prepare, weigh
from anygrpo.train.log_probs import log_probs_of, referenced, with_reference


def rollout_of(rewards, lengths=None, wide=3, **given):
    """[P, G] samples of `lengths` decisions (all `wide` of them, if not said)."""
    rewards = torch.tensor(rewards)
    lengths = torch.full(rewards.shape, wide) if lengths is None else torch.tensor(lengths)
    mask = torch.arange(wide) < lengths[..., None]
    log_probs = -torch.arange(1.0, mask.numel() + 1).view(mask.shape)
    samples = {"n": torch.arange(rewards.numel()).view(rewards.shape)}
    return Rollout.of(samples, log_probs, mask, rewards=rewards, **given)


def prepared_of(rollout, *, method="grpo", source="policy", memory=None, **algorithm):
    stage = stage_of(method, source, **algorithm)
    return prepare(rollout, stage, numbers_of(stage), memory), stage


def bools(rows):
    return torch.tensor(rows, dtype=torch.bool)


# --- prepare


def test_a_step_of_grpo():
    rollout = rollout_of([[0.0, 2.0], [1.0, 1.0]], valid=bools([[1, 1], [1, 0]]))
    made, _ = prepared_of(rollout, advantage="zscore", std_floor=0.0, epsilon=0.0)
    deviation = 2**0.5  # with ddof = 1
    torch.testing.assert_close(made.advantages[0], torch.tensor([-1 / deviation, 1 / deviation]), atol=1e-3, rtol=0)
    assert made.advantages[1].abs().max() == 0
    assert torch.equal(made.mask, rollout.mask & rollout.valid[..., None])
    assert (made.groups, made.width, made.limit, made.mean_group, made.first) == (2, 3, 3, 2.0, 0)
    assert made.counts["groups/live"] == 0.5
    assert made.counts["advantage/clipped"] == 0.0


def test_the_mean_group_counts_what_was_drawn():
    rollout = rollout_of([[0.0, 1.0, 2.0], [0.0, 1.0, 9.0]], present=bools([[1, 1, 1], [1, 1, 0]]))
    rollout = replace(rollout, valid=rollout.present)
    assert prepared_of(rollout)[0].mean_group == 2.5
    none = rollout.groups(bools([0, 0]))
    assert prepared_of(none)[0].mean_group == 0.0


def test_a_clipped_advantage_is_counted():
    made, _ = prepared_of(rollout_of([[0.0, 0.0, 0.0, 8.0]]), advantage_clip=1.0, ddof=1)
    assert made.counts["advantage/clipped"] == 0.25
    assert float(made.advantages.max()) == 1.0


def test_supervised_stages_learn_the_best_stored_answers():
    rollout = rollout_of([[1.0, 3.0, 3.0], [5.0, 5.0, 9.0]], valid=bools([[1, 1, 1], [1, 1, 0]]))
    made, _ = prepared_of(rollout, method="supervised", source="stored")
    assert made.advantages.tolist() == [[0.0, 1.0, 1.0], [1.0, 1.0, 0.0]]
    assert made.rollout.valid.tolist() == [[False, True, True], [True, True, False]]
    assert torch.equal(made.mask.any(-1), made.rollout.valid)
    assert (made.groups, made.width, made.mean_group, made.counts) == (2, 3, 0.0, {})
    assert made.limit is None or made.limit == 3


@pytest.mark.parametrize(
    ("variant", "expected"),
    [("softmax", [0.4768, 1.5232]), ("top1", [0.0, 2.0])],
)
def test_rce_stages_learn_all_by_their_reward(variant, expected):
    """Rewards 1 and 2 at temperature 1/1.1616 = .8609: softmax (.2384, .7616), times the two samples."""
    stage = stage_of("rce", "stored", rce_variant=variant, rce_temperature=0.8609)
    made = prepare(rollout_of([[1.0, 2.0]]), stage, numbers_of(stage), None)
    assert made.advantages[0].tolist() == pytest.approx(expected, abs=1e-3)
    assert (made.groups, made.width, made.limit) == (1, 3, 3)


def test_rce_by_rank_asks_for_the_order_alone():
    of = lambda rewards: prepared_of(rollout_of(rewards), method="rce", source="stored", rce_variant="rank")[0]  # noqa: E731
    assert torch.equal(of([[1.0, 2.0, 5.0]]).advantages, of([[1.0, 2.0, 900.0]]).advantages)
    assert of([[1.0, 2.0, 5.0]]).advantages[0, 2] > of([[1.0, 2.0, 5.0]]).advantages[0, 1] > 0


def test_invalid_samples_of_rce_count_in_no_loss():
    made, _ = prepared_of(rollout_of([[1.0, 2.0]], valid=bools([[1, 0]])), method="rce", source="stored")
    assert made.mask.any(-1).tolist() == [[True, False]]
    assert made.advantages.tolist() == [[1.0, 0.0]]


# --- limits and penalties


def test_the_limit_is_the_policys_or_the_width_where_all_are_full():
    full, cut = rollout_of([[0.0, 1.0]]), rollout_of([[0.0, 1.0]], [[3, 2]])
    assert prepared_of(full)[0].limit == 3
    assert prepared_of(cut)[0].limit is None
    assert prepared_of(replace(cut, limit=7))[0].limit == 7
    assert prepared_of(replace(full, limit=7))[0].limit == 7
    broken = replace(cut, valid=bools([[1, 0]]))  # the short one never was: all that are valid are full
    assert prepared_of(broken)[0].limit == 3


def test_the_overlong_penalty_is_in_the_rewards_of_the_step():
    """Buffer 2 of 4: no penalty up to 2 decisions, -1/2 at 3, -1 at 4."""
    rollout = rollout_of([[5.0, 5.0, 5.0]], [[2, 3, 4]], wide=4, limit=4)
    made, _ = prepared_of(rollout, overlong_buffer=2, advantage="centred")
    assert made.advantages.tolist() == [[0.5, 0.0, -0.5]]
    assert made.rollout.rewards.tolist() == [[5.0] * 3]  # numbers about what is kept are of the task's rewards
    plain, _ = prepared_of(rollout, advantage="centred")
    assert plain.advantages.tolist() == [[0.0] * 3]
    with pytest.raises(ConfigError, match="overlong_buffer = 2, but the policy does not say"):
        prepared_of(replace(rollout, limit=None), overlong_buffer=2)


def test_groups_that_a_refill_keeps_are_judged_by_the_penalised_rewards():
    rollout = rollout_of([[5.0, 5.0], [5.0, 5.0], [0.0, 1.0]], [[2, 3], [4, 4], [1, 1]], wide=4, limit=4)
    filters = ({"kind": "drop_constant"},)
    stage = stage_of(overlong_buffer=2, filters=filters)
    assert kept_groups(rollout, stage, numbers_of(stage)).tolist() == [True, False, True]
    stage = stage_of(filters=filters)
    assert kept_groups(rollout, stage, numbers_of(stage)).tolist() == [False, False, True]


def test_parts_that_cancel_in_the_total_keep_their_group():
    parts = {"a": torch.tensor([[0.0, 1.0]]), "b": torch.tensor([[1.0, 0.0]])}
    rollout = rollout_of([[1.0, 1.0]], components=parts)
    for advantage, kept in (("components", True), ("gdpo", True), ("zscore", False), ("batch", False)):
        stage = stage_of(advantage=advantage, filters=({"kind": "drop_constant"},))
        assert kept_groups(rollout, stage, numbers_of(stage)).tolist() == [kept]
    stage = stage_of(advantage="components", filters=({"kind": "minimum_spread", "spread": 0.5},))
    assert kept_groups(rollout, stage, numbers_of(stage)).tolist() == [False]  # a filter that was asked for acts


def test_turns_that_cancel_in_the_total_keep_their_group():
    """Both samples earn 1, one in its first turn and one in its second: their turns differ, and teach."""
    turn = torch.tensor([[[0, 0, 1], [0, 0, 1]]], dtype=torch.int16)
    paid = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    total = torch.tensor([[1.0, 1.0]])
    rollout = rollout_of(total.tolist(), turn=turn, turn_rewards=paid, components={"environment": total})
    for credit, kept in (("outcome", False), ("turns", True), ("process", True)):
        stage = stage_of(credit=credit, advantage="centred", filters=({"kind": "drop_constant"},))
        assert kept_groups(rollout, stage, numbers_of(stage)).tolist() == [kept]
        advantages = prepare(rollout, stage, numbers_of(stage), None).advantages
        assert bool((advantages != 0).any()) == kept


@pytest.mark.parametrize("advantage", ["overall", "running", "history"])
def test_groups_without_spread_that_learn_are_not_refilled(advantage):
    """Compared with other rows than the group's: thrown away, they would move the baseline by luck of the draw."""
    filters = ({"kind": "drop_constant"}, {"kind": "minimum_spread", "spread": 0.5})
    rollout = rollout_of([[1.0, 1.0], [0.0, 1.0], [0.0, 0.1]])
    stage = stage_of(advantage=advantage, filters=filters[:1])
    assert kept_groups(rollout, stage, numbers_of(stage)).tolist() == [True, True, True]
    asked = stage_of(advantage=advantage, filters=filters[1:])
    assert kept_groups(rollout, asked, numbers_of(asked)).tolist() == [False, True, False]


def test_history_refuses_groups_whose_prompt_nobody_knows():
    with pytest.raises(ConfigError, match="1 of 2 groups do not say of which prompt"):
        prepared_of(rollout_of([[0.0, 1.0], [1.0, 0.0]], prompt_id=torch.tensor([7, 0])), advantage="history")


def test_components_weigh_as_the_task_and_the_recipe_say():
    parts = {"a": torch.tensor([[0.0, 1.0]]), "b": torch.tensor([[1.0, 0.0]])}
    rollout = rollout_of([[1.0, 1.0]], components=parts, weights={"a": 3.0, "b": 1.0})
    assert prepared_of(rollout, advantage="components")[0].advantages[0, 1] > 0
    less = prepared_of(rollout, advantage="components", component_weights={"a": 0.5})[0]
    assert less.advantages[0, 1] < 0  # the recipe's word is the last


def test_the_running_decay_is_the_recipes():
    state = RunningState(mean=1.0, variance=1.0, weight=1.0, decay=0.9)
    made, _ = prepared_of(rollout_of([[0.0, 1.0]]), advantage="running", running_decay=0.25, memory=state)
    assert made.memory is not None
    assert made.memory.decay == 0.25
    fresh, _ = prepared_of(rollout_of([[0.0, 1.0]]), advantage="running", running_decay=0.25)
    assert fresh.memory is not None
    assert fresh.memory.mean == pytest.approx(0.5)
    assert fresh.memory.mean != made.memory.mean


# --- weigh


def weighed(rollout, **settings):
    made, stage = prepared_of(rollout, filters=(), **settings)
    return weigh(made, stage)


LENGTHS = [[1, 3], [2, 2]]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"reduction": "token_mean"}, [1 / 8] * 4),
        ({"reduction": "sequence_mean"}, [1 / 4, 1 / 12, 1 / 8, 1 / 8]),
        ({"reduction": "prompt_mean"}, [1 / 8] * 4),  # two prompts of four decisions
        ({"reduction": "constant", "horizon": 5}, [1 / 20] * 4),
        ({"reduction": "constant"}, [1 / 40] * 4),  # the rollout's limit
        ({"method": "rce", "source": "stored", "reduction": "token_mean"}, [1 / 4] * 4),  # a mean of sums
    ],
)
def test_each_decision_weighs_what_the_reduction_says(settings, expected):
    batch = weighed(rollout_of([[0.0, 1.0], [0.0, 1.0]], LENGTHS, limit=10), **settings)
    assert batch.weights.amax(1).tolist() == pytest.approx(expected)
    assert torch.equal(batch.weights > 0, batch.mask)
    assert batch.row_weights.tolist() == pytest.approx([1 / 4] * 4)
    assert len(batch) == 4
    assert batch.advantages.shape == (4, 1)
    assert batch.samples["n"].tolist() == [0, 1, 2, 3]
    assert batch.old[:, 0].tolist() == [-1.0, -4.0, -7.0, -10.0]
    assert batch.ref is None
    assert batch.importance is None


def test_prompts_are_told_apart():
    batch = weighed(rollout_of([[0.0, 1.0], [0.0, 1.0]], [[1, 1], [3, 3]]), reduction="prompt_mean")
    assert batch.weights.amax(1).tolist() == pytest.approx([1 / 4, 1 / 4, 1 / 12, 1 / 12])


def test_what_a_step_carries_comes_along_row_by_row():
    made, stage = prepared_of(rollout_of([[0.0, 1.0], [0.0, 1.0]]))
    more = {name: torch.full((2, 2, 3), value) for name, value in (("old", 5.0), ("ref", 6.0), ("importance", 7.0))}
    more["old"][1, 0] = 8.0
    batch = weigh(replace(made, **more), stage)
    assert batch.old[:, 0].tolist() == [5.0, 5.0, 8.0, 5.0]
    assert batch.ref is not None
    assert batch.importance is not None
    assert (batch.ref.shape, batch.ref[0, 0], batch.importance.shape, batch.importance[3, 2]) == ((4, 3), 6, (4, 3), 7)


def test_advantages_of_turns_keep_their_columns():
    made, stage = prepared_of(rollout_of([[0.0, 1.0]]))
    by_turn = torch.arange(6.0).view(1, 2, 3)
    assert weigh(replace(made, advantages=by_turn), stage).advantages.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


@pytest.mark.parametrize("reduction", ["token_mean", "prompt_mean"])
def test_prompts_with_groups_of_unequal_size_weigh_the_same(reduction):
    """Two samples of the first prompt, four of the second, of two decisions each: mean group 3, so rows weigh 3/2 and
    3/4 of what they would; a reduction that is by prompt is left as it is."""
    present = bools([[1, 1, 0, 0], [1, 1, 1, 1]])
    rollout = rollout_of([[0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]], [[2, 2, 0, 0], [2] * 4], wide=2, present=present)
    batch = weighed(replace(rollout, valid=present), reduction=reduction)
    totals = batch.weights.sum(1).view(2, 4).sum(1).tolist()
    assert totals == pytest.approx([1 / 2, 1 / 2])
    assert batch.row_weights.view(2, 4)[:, 0].tolist() == pytest.approx([3 / 12, 3 / 24])
    assert batch.row_weights.view(2, 4)[0, 2:].tolist() == [0.0, 0.0]


# --- minibatches


def parts_of(groups=5, *, seed=3, first=0, here=None, **algorithm):
    made, stage = prepared_of(rollout_of([[0.0, 1.0]] * (here or groups)), **algorithm)
    made = replace(made, groups=groups, first=first)
    return [part.rollout.samples["n"][:, 0].div(2).tolist() for part in minibatches(made, stage, seed)]


def test_a_pass_without_minibatches_is_the_step_itself():
    made, stage = prepared_of(rollout_of([[0.0, 1.0]] * 3), epochs=2)
    assert [part is made for part in minibatches(made, stage, 0)] == [True, True]


def test_each_pass_deals_the_groups_anew_into_even_sets():
    made = parts_of(5, minibatches=2, epochs=3)
    assert [len(part) for part in made] == [3, 2] * 3
    for a, b in zip(made[::2], made[1::2]):
        assert sorted(a + b) == [0, 1, 2, 3, 4]
    assert len({tuple(part) for part in made[::2]}) > 1
    assert made == parts_of(5, minibatches=2, epochs=3)
    assert made != parts_of(5, minibatches=2, epochs=3, seed=4)


def test_no_more_sets_than_groups():
    assert [len(part) for part in parts_of(2, minibatches=4)] == [1, 1]
    none, stage = prepared_of(rollout_of([[0.0, 1.0]]).groups(bools([0])), minibatches=4)
    assert [part is none for part in minibatches(none, stage, 0)] == [True]


def test_ranks_that_hold_some_groups_count_the_same_sets():
    """The third to the fifth of seven groups are here: their numbers from 0 on, in the same sets."""
    whole = parts_of(7, minibatches=3)
    mine = parts_of(7, minibatches=3, first=2, here=3)
    assert mine == [[float(n) - 2 for n in sorted(part) if 2 <= n < 5] for part in whole]


def test_a_set_holds_all_that_belongs_to_its_groups():
    rollout = rollout_of([[0.0, 1.0]] * 4)
    made, stage = prepared_of(rollout, minibatches=2)
    tag = torch.arange(4.0)[:, None, None].expand(4, 2, 3)
    made = replace(made, advantages=tag[..., 0], old=tag + 10, importance=tag + 20, ref=tag + 30)
    for part in minibatches(made, stage, 1):
        numbers = (part.rollout.samples["n"][:, 0] / 2).tolist()
        assert part.advantages[:, 0].tolist() == numbers
        assert part.mask.shape == (len(numbers), 2, 3)
        for name, more in (("old", 10), ("importance", 20), ("ref", 30)):
            assert getattr(part, name)[:, 0, 0].tolist() == [n + more for n in numbers]


# --- rows that can add nothing


def batch_of(advantages=(1.0, 0.0, 2.0, 0.0), masked=(1, 1, 0, 0), row_weights=(0.25, 0.25, 0.25, 0.0)):
    n = len(advantages)
    mask = torch.tensor(masked, dtype=torch.bool)[:, None].expand(n, 2)
    zeros = torch.zeros(n, 2)
    return Batch(
        {"n": torch.arange(n)}, zeros, None, mask, torch.tensor(advantages)[:, None], zeros, torch.tensor(row_weights)
    )


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ({}, [0]),
        ({"beta": 0.1}, [0, 1]),
        ({"entropy_coef": 0.1}, [0, 1]),
        ({"lambda_supervised": 0.1}, [0, 1, 2]),
        ({"lambda_consistency": 0.1}, [0, 1, 2]),
        ({"lambda_pg": 0.0, "beta": 0.1}, [0, 1]),
        ({"lambda_pg": 0.0, "lambda_supervised": 0.1}, [0, 1, 2]),
        ({"method": "rce"}, [0]),
        ({"method": "supervised"}, [0]),
    ],
)
def test_rows_stay_where_a_term_is_theirs(settings, rows):
    stage = stage_of(**settings)
    assert needed_rows(batch_of(), numbers_of(stage), stage).samples["n"].tolist() == rows


def test_a_whole_batch_is_handed_on_as_it_is():
    stage = stage_of()
    batch = batch_of(advantages=(1.0, -1.0), masked=(1, 1), row_weights=(0.5, 0.5))
    assert needed_rows(batch, numbers_of(stage), stage) is batch


def test_an_objective_that_may_act_at_advantage_zero_keeps_its_rows(monkeypatch):
    stage = stage_of()
    monkeypatch.setattr(batches, "chosen", lambda kind, name: SimpleNamespace(idle_at_zero=False))
    assert needed_rows(batch_of(), numbers_of(stage), stage).samples["n"].tolist() == [0, 1]


# --- log-probs of rows


class Counted(Bandit):
    """Remembers how many rows and which decisions each pass had."""

    def __init__(self, picks, time_chunk=None):
        super().__init__(0, picks=picks)
        self.time_chunk, self.seen = time_chunk, []

    def evaluate(self, samples, times, want=frozenset()):
        self.seen.append((len(samples["arms"]), times.start, times.stop))
        return super().evaluate(samples, times, want)


def drawn(policy, p=3, g=2):
    generator = torch.Generator().manual_seed(1)
    prompts = [{"x": torch.randn(5, generator=generator)} for _ in range(p)]
    return policy.sample(prompts, g, 4)


@pytest.mark.parametrize(
    ("rows", "chunk", "seen"),
    [
        (6, None, [(6, 0, 3)]),
        (4, None, [(4, 0, 3), (2, 0, 3)]),
        (4, 2, [(4, 0, 2), (4, 2, 3), (2, 0, 2), (2, 2, 3)]),
        (9, 1, [(6, 0, 1), (6, 1, 2), (6, 2, 3)]),
    ],
)
def test_log_probs_are_those_of_the_sampler_however_they_are_cut(rows, chunk, seen):
    policy = Counted(3, chunk)
    rollout = drawn(policy)
    samples = {name: x.flatten(0, 1) for name, x in rollout.samples.items()}
    like = rollout.log_probs.flatten(0, 1)
    torch.testing.assert_close(log_probs_of(policy, samples, torch.zeros_like(like), rows), like)
    assert policy.seen == seen


def test_no_rows_have_no_log_probs():
    policy = Counted(3)
    samples = {"x": torch.zeros(0, 5), "arms": torch.zeros(0, 3, dtype=torch.int64)}
    assert log_probs_of(policy, samples, torch.zeros(0, 3), 4).shape == (0, 3)
    assert policy.seen == []


def test_a_plan_of_the_policys_own_is_followed():
    policy = Counted(2)
    policy.plan = lambda samples, rows: [torch.tensor([1, 3]), torch.tensor([0, 2, 4, 5])]
    rollout = drawn(policy)
    samples = {name: x.flatten(0, 1) for name, x in rollout.samples.items()}
    found = log_probs_of(policy, samples, torch.zeros(6, 2), 100)
    torch.testing.assert_close(found, rollout.log_probs.flatten(0, 1))
    assert policy.seen == [(2, 0, 2), (4, 0, 2)]


def test_the_reference_scores_the_rows_that_count_alone():
    policy = Counted(2)
    start = drawn(policy)
    with torch.no_grad():
        policy.net.weight.add_(1.0).mul_(3.0)
    rollout = replace(start, rewards=torch.tensor([[0.0, 1.0]] * 3), valid=bools([[1, 1], [1, 0], [0, 0]]))
    made, _ = prepared_of(rollout, beta=0.1)
    found = referenced(policy, made, 2)
    assert found.ref is not None
    live = rollout.valid[..., None].expand(3, 2, 2)
    torch.testing.assert_close(found.ref[live], start.log_probs[live])  # the weights as they were at the start
    assert found.ref[~live].abs().max() == 0
    assert [rows for rows, *_ in policy.seen] == [2, 1]


def test_a_batch_gets_the_references_log_probs():
    policy = Counted(2)
    start = drawn(policy)
    with torch.no_grad():
        policy.net.weight.mul_(5.0)
    made, stage = prepared_of(replace(start, rewards=torch.tensor([[0.0, 1.0]] * 3)))
    batch = with_reference(policy, weigh(made, stage), 4)
    torch.testing.assert_close(batch.ref, start.log_probs.flatten(0, 1))
