"""A step's numbers, each against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from anygrpo.algorithm.statistics import RunningState
from anygrpo.core.rollout import Rollout
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.recipe import Stage
from anygrpo.recipe.training import OptimizerConfig
from anygrpo.train import measure
from anygrpo.train.batches import Prepared, prepare
from anygrpo.train.stages import numbers_at
from anygrpo.train.terms import Tally

NAN = float("nan")


def bools(rows):
    return torch.tensor(rows, dtype=torch.bool)


def example(**given):
    """Three groups of three: one with spread and an invalid sample, one at the best, one of two at the worst reward."""
    lengths = torch.tensor([[1, 2, 4], [4, 4, 4], [3, 3, 0]])
    mask = torch.arange(4) < lengths[..., None]
    settings = {
        "rewards": torch.tensor([[0.0, 2.0, 9.0], [2.0, 2.0, 2.0], [0.0, 0.0, 7.0]]),
        "valid": bools([[1, 1, 0], [1, 1, 1], [1, 1, 0]]),
        "present": bools([[1, 1, 1], [1, 1, 1], [1, 1, 0]]),
        "ended": bools([[1, 1, 0], [1, 0, 1], [1, 1, 0]]),
        "components": {"hit": torch.tensor([[4.0, NAN, 5.0], [1.0, 1.0, NAN], [0.0, 0.0, 3.0]])},
        "reasons": {(0, 2): "cannot be parsed: 3 brackets"},
        "info": {"time/generate": 1.5},
    }
    return Rollout.of({}, torch.full((3, 3, 4), -0.5), mask, **settings | given)


ROW = {
    "time/generate": 1.5,
    "invalid/share": 1 / 8,
    "invalid/cannot be parsed": 1 / 8,
    "reward/mean": 8 / 7,
    "reward/max": 2.0,
    "reward/std": (16 / 7 - (8 / 7) ** 2) ** 0.5,
    "reward/std_within": 2**0.5 / 3,
    "reward/std_between": (2 / 3) ** 0.5,
    "reward/component/hit": 6 / 5,
    "groups/live": 1 / 3,
    "groups/all_best": 1 / 3,
    "groups/all_worst": 1 / 3,
    "length/mean": 25 / 8,
    "length/max": 4.0,
    "length/min": 1.0,
    "truncated/share": 2 / 8,
}


def test_all_numbers_of_a_rollout():
    assert measure.rollout_metrics(example()) == pytest.approx(ROW)


def test_what_the_sampler_measured_itself_stands():
    said = {"length/mean": 9.0, "length/max": 9.5, "length/min": 8.5, "truncated/share": 0.75}
    assert measure.rollout_metrics(example(info=said)) == pytest.approx(
        {k: v for k, v in ROW.items() if k != "time/generate"} | said
    )


def test_reasons_of_one_kind_are_counted_together_and_named_in_sixty_letters():
    why = {(0, 2): "late: a", (1, 0): "late: b", (1, 1): "x" * 80}
    row = measure.rollout_metrics(example(reasons=why))
    assert {k: v for k, v in row.items() if k.startswith("invalid/") and k != "invalid/share"} == pytest.approx(
        {"invalid/late": 2 / 8, f"invalid/{'x' * 60}": 1 / 8}
    )


@pytest.mark.parametrize(
    ("padding", "valid", "share"),
    [
        (0.25, [[1, 1, 1, 0]], 0.0),  # the fourth place is no sample
        (0.25, [[1, 1, 0, 0]], 1 / 3),
        (0.5, [[1, 1, 1, 1]], 0.0),
        (1.0, [[0, 0, 0, 0]], 0.0),
    ],
)
def test_places_of_a_rectangle_are_no_invalid_samples(padding, valid, share):
    rollout = Rollout.of({}, torch.zeros(1, 4, 1), bools([[[1]] * 4]), valid=bools(valid))
    rollout.info["offline/padding"] = padding
    assert measure.rollout_metrics(rollout)["invalid/share"] == pytest.approx(share)


def test_nothing_valid_and_nothing_there():
    one = Rollout.of({}, torch.zeros(1, 1, 2), bools([[[1, 0]]]), valid=bools([[0]]), reasons={(0, 0): "bad"})
    lengths = {"length/mean": 1.0, "length/max": 1.0, "length/min": 1.0, "truncated/share": 0.0}
    assert measure.rollout_metrics(one) == {"invalid/share": 1.0, "invalid/bad": 1.0} | lengths
    none = Rollout.of({}, torch.zeros(0, 2, 2), torch.zeros(0, 2, 2, dtype=torch.bool))
    nothing = {"length/mean": 0.0, "length/max": 0.0, "length/min": 0.0, "truncated/share": 1.0}
    assert measure.rollout_metrics(none) == {"invalid/share": 1.0} | nothing


def test_all_rewards_alike_are_the_best_and_not_the_worst():
    row = measure.rollout_metrics(Rollout.of({}, torch.zeros(2, 2, 1), torch.ones(2, 2, 1, dtype=torch.bool)))
    assert (row["groups/live"], row["groups/all_best"], row["groups/all_worst"]) == (0.0, 1.0, 0.0)


def test_constant_groups_are_told_apart_by_their_reward():
    """Five groups: one at the best reward, two at the worst, one between, one with spread."""
    rewards = torch.tensor([[3.0, 3.0], [1.0, 1.0], [1.0, 1.0], [2.0, 2.0], [1.0, 3.0]])
    rollout = Rollout.of({}, torch.zeros(5, 2, 1), torch.ones(5, 2, 1, dtype=torch.bool), rewards=rewards)
    row = measure.rollout_metrics(rollout)
    assert (row["groups/live"], row["groups/all_best"], row["groups/all_worst"]) == pytest.approx((0.2, 0.2, 0.4))


def test_a_group_without_a_valid_sample_is_no_group():
    valid = bools([[1, 1], [0, 0]])
    rewards = torch.tensor([[1.0, 0.0], [5.0, 5.0]])
    rollout = Rollout.of({}, torch.zeros(2, 2, 1), torch.ones(2, 2, 1, dtype=torch.bool), rewards=rewards, valid=valid)
    row = measure.rollout_metrics(rollout)
    assert row["groups/live"] == 1.0
    assert row["reward/std_within"] == pytest.approx(0.5**0.5)
    assert row["reward/std_between"] == 0.0


def test_the_spread_within_groups_is_that_of_a_sample():
    """0, 1, 2 and 3, 3, 6: variances 1 and 3, each over n - 1."""
    rewards = torch.tensor([[0.0, 1.0, 2.0], [3.0, 3.0, 6.0]])
    rollout = Rollout.of({}, torch.zeros(2, 3, 1), torch.ones(2, 3, 1, dtype=torch.bool), rewards=rewards)
    row = measure.rollout_metrics(rollout)
    assert row["reward/std_within"] == pytest.approx((1 + 3**0.5) / 2)
    assert row["reward/std_between"] == 1.5


def prepared_of(rollout, advantages, mask=None, **given):
    return Prepared(rollout, torch.as_tensor(advantages), rollout.mask if mask is None else mask, {}, **given)


def test_what_is_kept_is_measured_apart():
    """Of `example`, the filter left the second group alone: three samples of reward 2 and length 4."""
    drawn = example()
    mask = drawn.mask & bools([0, 1, 0])[:, None, None]
    kept = measure.kept_metrics(
        prepared_of(drawn, torch.zeros(3, 3), mask), drawn.joined(drawn.groups(bools([1, 0, 0])))
    )
    expected = {
        "reward/mean": 2.0, "reward/max": 2.0, "reward/std": 0.0, "reward/std_within": 0.0, "reward/std_between": 0.0,
        "reward/component/hit": 1.0, "groups/live": 0.0, "groups/all_best": 1.0, "groups/all_worst": 0.0,
        "length/mean": 4.0, "length/max": 4.0, "length/min": 4.0, "truncated/share": 1 / 3,
    }  # fmt: skip
    counts = {"groups/drawn": 4.0, "groups/kept": 1.0}
    assert kept == pytest.approx({f"kept/{k}": v for k, v in expected.items()} | counts)


def test_a_row_that_left_its_group_is_not_kept():
    """Of the first group, rewards 0 and 2, the second sample alone has decisions left."""
    drawn = example()
    mask = drawn.mask & bools([[0, 1, 0], [0, 0, 0], [0, 0, 0]])[..., None]
    kept = measure.kept_metrics(prepared_of(drawn, torch.zeros(3, 3), mask), drawn)
    assert (kept["kept/reward/mean"], kept["kept/reward/max"], kept["groups/kept"]) == (2.0, 2.0, 1.0)


def stage(method="grpo", source="policy"):
    return Stage("s", method, source, 1, None, AlgorithmConfig(), OptimizerConfig(), None)


def row_of(stage, prepared, drawn):
    return measure.step_metrics(stage, numbers_at(stage, 0, 1), prepared, drawn, {"grad_norm/total": 3.0})


def test_a_row_says_what_was_kept_only_where_that_is_less():
    drawn = example()
    keeps = drawn.mask & drawn.valid[..., None]
    whole = row_of(stage(), prepared_of(drawn, torch.zeros(3, 3), keeps), drawn)
    assert not [name for name in whole if name.startswith("kept/")]
    assert whole["grad_norm/total"] == 3.0
    assert whole["advantage/abs_max"] == 0.0
    less = row_of(stage(), prepared_of(drawn, torch.zeros(3, 3), keeps & bools([0, 1, 0])[:, None, None]), drawn)
    assert less["kept/reward/mean"] == 2.0
    assert less["reward/mean"] == pytest.approx(8 / 7)


def test_groups_are_counted_live_among_all_that_were_drawn():
    """A refill kept two live groups of five drawn; with an overlong penalty the lengths of a third make spread."""
    rewards = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    mask = torch.arange(4) < torch.tensor([[4, 4], [4, 4], [2, 4], [4, 4], [4, 4]])[..., None]
    drawn = Rollout.of({}, torch.zeros(5, 2, 4), mask, rewards=rewards, limit=4)
    for buffer, live in ((0, 2 / 5), (2, 3 / 5)):
        filled = stage()
        filled = replace(filled, algorithm=filled.algorithm.model_copy(update={"overlong_buffer": buffer}))
        kept = prepare(drawn.groups(torch.arange(5) < 2), filled, numbers_at(filled, 0, 1), None)
        row = row_of(filled, kept, drawn)
        assert kept.counts["groups/live"] == 1.0
        assert row["groups/live"] == live
        assert row["kept/groups/live"] == row["groups/live_after/drop_constant"] == 1.0
        assert row["kept/reward/mean"] == 0.5
        assert row["reward/mean"] == pytest.approx(0.6)


@pytest.mark.parametrize("method", ["supervised", "rce"])
def test_stored_actions_have_the_files_rewards_and_no_advantages(method):
    drawn = example()
    row = row_of(
        stage(method, "stored"), prepared_of(drawn, torch.ones(3, 3), drawn.mask & drawn.valid[..., None]), drawn
    )
    assert row["stored/reward/mean"] == pytest.approx(8 / 7)
    assert "reward/mean" not in row
    assert "advantage/mean" not in row
    assert ("groups/live" in row) == (method == "rce")


def test_rows_of_stored_actions():
    row = {
        "reward/mean": 2.0, "reward/max": 3.0, "reward/std": 1.0, "reward/std_within": 0.5, "reward/std_between": 0.4,
        "groups/live": 0.5, "offline/value": 7.0, "length/mean": 4.0,
    }  # fmt: skip
    moved = {"stored/reward/mean": 2.0, "stored/reward/max": 3.0, "length/mean": 4.0, "offline/value": 7.0}
    spread = {"reward/std_within": 0.5, "reward/std_between": 0.4, "groups/live": 0.5}
    with_std = moved | {"stored/reward/std": 1.0}
    assert measure.of_stored_actions(row) == with_std | spread | {"reward/mean": 7.0}
    assert measure.of_stored_actions(row, imitated=True) == with_std
    still = row | {"reward/std": 0.0}
    assert measure.of_stored_actions(still) == moved | {"stored/reward/std": 0.0, "reward/mean": 7.0}
    shown = {"length/mean": 4.0, "offline/value": 7.0}
    assert measure.of_stored_actions(still, imitated=True) == shown  # no zeros that would read as failures
    assert measure.of_stored_actions({"groups/live": 0.5, "reward/mean": 1.0}) == {"stored/reward/mean": 1.0}
    assert measure.of_stored_actions({"reward/std": 0.1, "groups/live": 1.0}) == {
        "stored/reward/std": 0.1,
        "groups/live": 1.0,
    }


@pytest.mark.parametrize(
    ("source", "provides", "expected"),
    [("policy", {"entropy"}, {"entropy": 0.75}), ("stored", {"entropy"}, {}), ("policy", {"kl"}, {})],
)
def test_the_entropy_is_the_mean_of_minus_log_p(source, provides, expected):
    log_probs = torch.tensor([[[-0.5, -1.0], [-7.0, -9.0]]])
    rollout = Rollout.of({}, log_probs, bools([[[1, 1], [0, 0]]]))
    assert measure.entropy_estimate(rollout, stage(source=source), SimpleNamespace(provides=provides)) == expected
    empty = Rollout.of({}, log_probs, bools([[[0, 0], [0, 0]]]))
    assert measure.entropy_estimate(empty, stage(source=source), SimpleNamespace(provides=provides)) == {}


# --- advantages


def test_advantages_of_the_samples_that_count():
    """Four values by hand: -1, 3, 2, 0 (mean 1, deviation sqrt(2.5)); the invalid fifth, 100, is not among them."""
    rollout = Rollout.of({}, torch.zeros(3, 2, 1), torch.ones(3, 2, 1, dtype=torch.bool))
    rollout = rollout.groups(bools([1, 1, 1]))
    valid = bools([[1, 1], [1, 1], [0, 0]])
    rollout = replace(rollout, valid=valid)
    made = prepared_of(rollout, [[-1.0, 3.0], [2.0, 0.0], [100.0, 0.0]], rollout.mask & valid[..., None])
    made.counts["filter/x"] = 2.0
    assert measure.advantage_metrics(made) == pytest.approx(
        {
            "filter/x": 2.0,
            "groups/size": 2.0,
            "advantage/mean": 1.0,
            "advantage/std": 2.5**0.5,
            "advantage/abs_max": 3.0,
            "advantage/one_sign": 2 / 3,  # the second group and the third
        }
    )


def test_signs_of_groups():
    """-1 and 1: both signs. -1, -2 and 0.5, 0: one. All 0: not asked."""
    rollout = Rollout.of({}, torch.zeros(4, 2, 1), torch.ones(4, 2, 1, dtype=torch.bool))
    row = measure.advantage_metrics(prepared_of(rollout, [[-1.0, 1.0], [-1.0, -2.0], [0.5, 0.0], [0.0, 0.0]]))
    assert row["advantage/one_sign"] == pytest.approx(2 / 3)
    assert "advantage/one_sign" not in measure.advantage_metrics(prepared_of(rollout, torch.zeros(4, 2)))
    ones = measure.advantage_metrics(prepared_of(rollout, torch.ones(4, 2)))
    assert ones["advantage/one_sign"] == 1.0
    minus = measure.advantage_metrics(prepared_of(rollout, [[-1.0, 0.0], [-1.0, -1.0], [1.0, -1.0], [1.0, -1.0]]))
    assert minus["advantage/one_sign"] == 0.5


def test_advantages_of_turns_are_those_of_the_decisions_that_count():
    rollout = Rollout.of({}, torch.zeros(1, 2, 2), torch.ones(1, 2, 2, dtype=torch.bool))
    values = torch.tensor([[[1.0, 9.0], [-2.0, 4.0]]])
    row = measure.advantage_metrics(prepared_of(rollout, values, bools([[[1, 0], [1, 1]]])))
    assert row["advantage/mean"] == 1.0
    assert row["advantage/abs_max"] == 4.0
    assert row["groups/size"] == 2.0
    assert "groups/size_min" not in row


def test_groups_of_unequal_size_have_their_least_and_mean():
    present = bools([[1, 1, 1, 1], [1, 1, 0, 0]])
    mask = present[..., None] & bools([[1, 1, 1, 0], [1, 1, 0, 0]])[..., None]
    rollout = Rollout.of({}, torch.zeros(2, 4, 1), mask, present=present)
    row = measure.advantage_metrics(prepared_of(rollout, torch.zeros(2, 4)))
    assert (row["groups/size"], row["groups/size_min"], row["groups/size_mean"]) == (3.0, 2.0, 3.0)


def test_nothing_that_counts_has_no_advantage():
    none = Rollout.of({}, torch.zeros(0, 2, 1), torch.zeros(0, 2, 1, dtype=torch.bool))
    assert measure.advantage_metrics(prepared_of(none, torch.zeros(0, 2))) == {}
    dead = Rollout.of({}, torch.zeros(1, 1, 1), bools([[[0]]]), valid=bools([[0]]))
    assert measure.advantage_metrics(prepared_of(dead, torch.zeros(1, 1))) == {}
    one = Rollout.of({}, torch.zeros(1, 1, 1), bools([[[1]]]))
    assert measure.advantage_metrics(prepared_of(one, torch.zeros(1, 1)))["groups/size"] == 1.0


def test_the_running_statistics_are_shown_once_there_are_some():
    rollout = Rollout.of({}, torch.zeros(1, 1, 1), bools([[[1]]]))
    state = RunningState(mean=3.0, variance=9.0, weight=1.0)
    row = measure.advantage_metrics(prepared_of(rollout, torch.zeros(1, 1), memory=state))
    assert (row["reward/running_mean"], row["reward/running_std"]) == (3.0, 3.0)
    assert "reward/running_mean" not in measure.advantage_metrics(
        prepared_of(rollout, torch.zeros(1, 1), memory=RunningState())
    )


# --- terms and updates


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, {}),
        ({"lambda_pg": 0.5}, (0.5, 0.0, 0.0)),
        ({"lambda_supervised": 0.3}, (1.0, 0.3, 0.0)),
        ({"lambda_consistency": 0.2}, (1.0, 0.0, 0.2)),
        ({"lambda_pg": 2.0}, (2.0, 0.0, 0.0)),
    ],
)
def test_the_weights_of_terms_are_shown_where_they_are_not_plain(given, shown):
    of = Stage("s", "grpo", "policy", 1, None, AlgorithmConfig(**given), OptimizerConfig(), None)
    names = ("lambda/pg", "lambda/supervised", "lambda/consistency")
    assert measure.weights_of_terms(numbers_at(of, 0, 1)) == (dict(zip(names, shown)) if shown else {})


def tally_of(maxima=None, **sums):
    number = lambda v: torch.tensor(v, dtype=torch.float64)  # noqa: E731
    return Tally(
        {k.replace("__", "/"): number(v) for k, v in sums.items()}, {k: number(v) for k, v in (maxima or {}).items()}
    )


def test_means_over_decisions_and_over_updates():
    tally = tally_of(
        {"ratio/max": 1.5},
        loss__policy=6.0, grad_norm__kl=9.0, updates=3.0, count=4.0, log_ratio__sum=2.0, ratio__sum=8.0,
        kl__behaviour__sum=1.0, clip__low__sum=3.0, clip__high__sum=2.0, clip__dual__sum=1.0, kl__reference__sum=5.0,
        kl__count=10.0, entropy__sum=7.0, entropy__count=2.0, guarded=11.0,
    )  # fmt: skip
    assert measure.update_metrics(tally) == {
        "loss/policy": 2.0, "grad_norm/kl": 3.0, "log_ratio/mean": 0.5, "ratio/mean": 2.0, "kl/behaviour": 0.25,
        "clip/low": 0.75, "clip/high": 0.5, "clip/dual": 0.25, "kl/reference": 0.5, "entropy": 3.5, "ratio/max": 1.5,
        "guarded": 11.0,
    }  # fmt: skip


def test_sums_without_counts_give_no_mean():
    assert measure.update_metrics(Tally()) == {}
    assert measure.update_metrics(tally_of(count=0.0, ratio__sum=0.0, guarded=0.0)) == {}
    assert measure.update_metrics(tally_of(loss__kl=4.0)) == {"loss/kl": 4.0}
    assert measure.update_metrics(tally_of(count=2.0)) == {}


def test_peak_memory_is_in_gibibytes(monkeypatch):
    processor, gpu = torch.device("cpu"), torch.device("cuda")
    monkeypatch.setattr(measure, "peak_bytes", lambda: 3 * 2**30)
    assert measure.memory_gb(processor) == 3.0
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 2**31)
    assert measure.memory_gb(gpu) == 2.0
    assert measure.memory_gb(processor) == 3.0  # a policy on the processor beside a GPU
