"""One block's terms and the sums behind its metrics: weights times values, by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from stages import numbers_of, stage_of

from anygrpo.core.policy import ClipDefaults
from anygrpo.core.rollout import Batch, Evaluation
from anygrpo.train.terms import Tally, supervised_term, terms_of, wanted, wanted_at_any_step

OLD = torch.tensor([[-1.0, -2.0], [-1.5, -0.5], [-1.0, -1.0]])
MASK = torch.tensor([[1, 1], [1, 0], [0, 0]], dtype=torch.bool)
W = torch.tensor([[0.5, 0.25], [0.125, 0.0], [0.0, 0.0]])
ROWS = torch.tensor([0.75, 0.25, 0.0])


def block(advantages=(1.0, -2.0, 9.0), **given):
    made = Batch({}, OLD, None, MASK, torch.tensor(advantages)[:, None], W, ROWS)
    return replace(made, **given)


def policy_of(provides=(), low=0.2, high=0.3, targets=False, own=()):
    return SimpleNamespace(
        clip=ClipDefaults(low, high),
        provides=frozenset(provides),
        targets_in_samples=targets,
        own_losses=frozenset(own),
    )


def made(evaluation, b=None, *, policy=None, **settings):
    stage = stage_of(**settings)
    tally = Tally()
    terms = terms_of(policy or policy_of(), evaluation, b or block(), stage, numbers_of(stage), tally)
    return {k: float(v) for k, v in terms.items()}, {k: float(v) for k, v in (tally.sums | tally.maxima).items()}


def at(*ratios):
    """Log-probs with these ratios to `OLD` at the first row's two decisions and the second row's first."""
    a, b, c = ratios
    return OLD + torch.tensor([[math.log(a), math.log(b)], [math.log(c), 5.0], [7.0, 7.0]])


def test_the_policys_term_and_its_sums():
    """Ratios 1.1, 1.5 of advantage 1 and .5 of -2, clipped to [.8, 1.3]: -1.1, -1.3, and 2 x .8 as the pessimistic."""
    terms, sums = made(Evaluation(at(1.1, 1.5, 0.5)), objective="ppo")
    loss = -0.5 * 1.1 - 0.25 * 1.3 + 0.125 * 2 * 0.8
    assert terms == pytest.approx({"policy": loss})
    logs = [math.log(1.1), math.log(1.5), math.log(0.5)]
    expected = {
        "loss/policy": loss, "count": 3.0, "log_ratio/sum": sum(logs), "ratio/sum": 3.1,
        "kl/behaviour/sum": 3.1 - 3 - sum(logs), "clip/low/sum": 1.0, "clip/high/sum": 1.0, "guarded": 0.0,
        "log_ratio/abs_max": -logs[2], "ratio/max": 1.5,
    }  # fmt: skip
    assert sums == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_the_recipes_clip_range_is_in_force_where_it_is_given():
    terms, _ = made(Evaluation(at(1.1, 1.5, 0.5)), objective="ppo", clip_high=0.05, clip_low=0.4)
    assert terms["policy"] == pytest.approx(-0.5 * 1.05 - 0.25 * 1.05 + 0.125 * 2 * 0.6)


def test_a_ratio_beyond_the_guard_is_left_out_and_counted():
    terms, sums = made(Evaluation(at(1.1, 1.5, 0.5)), objective="ppo", ratio_guard=0.3, clip_high=9.0)
    assert sums["guarded"] == 1.0
    assert terms["policy"] == pytest.approx(-0.5 * 1.1 + 0.125 * 2 * 0.8)


def test_a_dual_clip_is_counted_where_it_is_set():
    """Ratio 5 of advantage -2: 10 without it, 2 x 2 = 4 with dual clip 2."""
    evaluation = Evaluation(at(1.0, 1.0, 5.0))
    terms, sums = made(evaluation, objective="ppo", dual_clip=2.0)
    assert sums["clip/dual/sum"] == 1.0
    assert terms["policy"] == pytest.approx(-0.75 + 0.125 * 4)
    terms, sums = made(evaluation, objective="ppo")
    assert "clip/dual/sum" not in sums
    assert terms["policy"] == pytest.approx(-0.75 + 0.125 * 10)


def test_importance_weighs_the_policys_term():
    factors = torch.tensor([[2.0, 0.5], [4.0, 1.0], [1.0, 1.0]])
    terms, sums = made(Evaluation(at(1.0, 1.0, 1.0)), block(importance=factors), objective="ppo")
    assert terms["policy"] == pytest.approx(-0.5 * 2 - 0.25 * 0.5 + 0.125 * 2 * 4)
    assert sums["loss/policy"] == pytest.approx(terms["policy"])


def test_lambda_pg_weighs_the_term_and_not_what_is_logged():
    terms, sums = made(Evaluation(at(1.0, 1.0, 1.0)), objective="ppo", lambda_pg=3.0)
    assert sums["loss/policy"] == pytest.approx(-0.5)
    assert terms["policy"] == pytest.approx(-1.5)
    terms, _ = made(Evaluation(at(1.0, 1.0, 1.0)), lambda_pg=0.0, beta=0.1)
    assert terms == {}


@pytest.mark.parametrize("method", ["supervised", "rce"])
def test_cross_entropy_of_stored_actions(method):
    """Sum of weight x advantage x -log p over the decisions that count; no ratios are told."""
    new = torch.tensor([[-1.0, -2.0], [-4.0, 9.0], [9.0, 9.0]])
    terms, sums = made(Evaluation(new), block(advantages=(1.0, 1.0, 1.0)), method=method)
    loss = 0.5 * 1 + 0.25 * 2 + 0.125 * 4
    assert terms == pytest.approx({"policy": loss})
    assert sums == pytest.approx({"loss/policy": loss})


# --- KL and entropy


def test_an_exact_kl_is_weighted_by_the_decisions_alone():
    kl = torch.tensor([[0.1, 0.2], [0.4, 8.0], [8.0, 8.0]])
    factors = torch.full((3, 2), 3.0)
    terms, sums = made(
        Evaluation(at(1.0, 1.0, 1.0), None, kl), block(importance=factors), kl="exact", beta=0.5, lambda_pg=0.0
    )
    loss = 0.5 * 0.1 + 0.25 * 0.2 + 0.125 * 0.4
    assert terms == pytest.approx({"kl": 0.5 * loss})
    assert sums == pytest.approx({"kl/reference/sum": 0.7, "kl/count": 3.0, "loss/kl": loss})


def test_a_sampled_kl_is_of_the_reference_and_weighted_by_importance():
    """k1 of new - ref = .3, .1, -.2 at ratio 1."""
    new = at(1.0, 1.0, 1.0)
    ref = new - torch.tensor([[0.3, 0.1], [-0.2, 4.0], [4.0, 4.0]])
    factors = torch.tensor([[2.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    terms, sums = made(Evaluation(new), block(ref=ref, importance=factors), kl="k1", beta=0.5, lambda_pg=0.0)
    loss = 0.5 * 2 * 0.3 + 0.25 * 0.1 - 0.125 * 0.2
    assert terms == pytest.approx({"kl": 0.5 * loss}, rel=1e-5)
    assert sums == pytest.approx(
        {"guarded": 0.0, "kl/reference/sum": 0.2, "kl/count": 3.0, "loss/kl": loss}, rel=1e-5, abs=1e-7
    )


def test_a_kl_that_was_not_measured_is_no_term():
    terms, sums = made(Evaluation(at(1.0, 1.0, 1.0)), beta=0.5, lambda_pg=0.0)
    assert (terms, sums) == ({}, {})
    terms, _ = made(Evaluation(at(1.0, 1.0, 1.0)), block(ref=OLD), beta=0.0)
    assert set(terms) == {"policy"}


def test_an_entropy_bonus():
    entropy = torch.tensor([[1.0, 2.0], [3.0, 9.0], [9.0, 9.0]])
    terms, sums = made(Evaluation(at(1.0, 1.0, 1.0), entropy), entropy_coef=0.1, lambda_pg=0.0)
    assert terms == pytest.approx({"entropy": -0.1 * (0.5 + 0.5 + 0.375)})
    assert sums == {"entropy/sum": 6.0, "entropy/count": 3.0}
    terms, _ = made(Evaluation(at(1.0, 1.0, 1.0), entropy), beta=1.0, lambda_pg=0.0)
    assert terms == {}


# --- losses that a row has once


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"lambda_supervised": 0.5, "lambda_consistency": 0.2, "lambda_pg": 0.0},
            {"supervised": 0.5, "consistency": 0.2},
        ),
        ({"method": "supervised"}, {"supervised": 1.0, "consistency": 0.0}),  # not given: the method's own loss is 1
        ({"method": "supervised", "lambda_supervised": 0.5}, {"supervised": 0.5, "consistency": 0.0}),
        ({"method": "rce", "lambda_supervised": 0.5}, {"supervised": 0.5, "consistency": 0.0, "policy": None}),
    ],
)
def test_losses_of_whole_rows(settings, expected):
    """Weights .75 and .25; of the row without weight even nan does not count."""
    losses = {"supervised": torch.tensor([1.0, 3.0, math.nan]), "consistency": torch.tensor([2.0, 4.0, math.nan])}
    terms, sums = made(Evaluation(at(1.0, 1.0, 1.0), losses=losses), block(advantages=(1.0, 2.0, 9.0)), **settings)
    value = {"supervised": 1.5, "consistency": 2.5}
    assert set(terms) == set(expected)
    for name, weight in expected.items():
        if weight is not None:
            assert terms[name] == pytest.approx(weight * value[name])
            assert sums[f"loss/{name}"] == pytest.approx(value[name])


def test_demonstrations_have_the_policys_loss_or_cross_entropy():
    tally = Tally()
    new = torch.tensor([[-1.0, -2.0], [-4.0, 9.0], [9.0, 9.0]])
    own = Evaluation(new, losses={"supervised": torch.tensor([1.0, 3.0, math.nan])})
    assert float(supervised_term(own, block(), 0.5, tally)["supervised"]) == pytest.approx(0.75)
    assert float(tally.sums["loss/supervised"]) == 1.5
    crossed = supervised_term(Evaluation(new), block(), 0.5, tally)
    assert {k: float(v) for k, v in crossed.items()} == pytest.approx({"supervised": 0.75})  # (.5 + .5 + .5) / 2
    assert float(tally.sums["loss/supervised"]) == pytest.approx(3.0)


# --- what is asked of the policy


@pytest.mark.parametrize(
    ("settings", "provides", "asked"),
    [
        ({}, ("supervised",), set()),
        ({"entropy_coef": 0.1}, (), {"entropy"}),
        ({"kl": "exact", "beta": 0.1}, (), {"kl"}),
        ({"kl": "exact"}, (), set()),
        ({"kl": "k3", "beta": 0.1}, (), set()),
        ({"lambda_consistency": 0.1}, (), {"consistency"}),
        ({"lambda_supervised": 0.1}, (), {"supervised"}),
        ({"method": "supervised"}, ("supervised",), {"supervised"}),
        ({"method": "supervised"}, (), set()),
        ({"method": "rce"}, ("supervised",), set()),
    ],
)
def test_what_the_terms_in_force_need(settings, provides, asked):
    stage = stage_of(**settings)
    assert wanted(stage, numbers_of(stage), policy_of(provides)) == asked


def test_what_a_schedule_may_ask_for_later():
    later = {"kind": "linear", "start": 0.0, "end": 0.3}
    policy = policy_of(targets=True)
    for name, term in (("entropy_coef", "entropy"), ("lambda_consistency", "consistency"), ("beta", "kl")):
        stage = stage_of(kl="exact", **{name: later})
        assert wanted(stage, numbers_of(stage), policy) == set()
        assert wanted_at_any_step(stage, 5, policy) == {term}
    stage = stage_of(lambda_supervised=later)
    assert wanted_at_any_step(stage, 5, policy) == {"supervised"}
    assert wanted_at_any_step(stage, 5, policy_of(targets=False)) == set()  # a batch of its own
    assert wanted_at_any_step(stage_of(), 0, policy) == set()


# --- tallies


def test_a_tally_adds_sums_and_keeps_maxima():
    one, other = Tally(), Tally()
    for tally, value in ((one, 2.0), (one, 3.0), (other, 10.0)):
        tally.add("a", torch.tensor(value, requires_grad=True))
        tally.peak("b", torch.tensor(-value))
    other.add("c", torch.tensor(1.0))
    one.merge(other)
    assert {k: float(v) for k, v in one.sums.items()} == {"a": 15.0, "c": 1.0}
    assert {k: float(v) for k, v in one.maxima.items()} == {"b": -2.0}
    assert one.sums["a"].dtype == one.maxima["b"].dtype == torch.float64
    assert not one.sums["a"].requires_grad
    assert one.over_ranks() is one


def test_a_loss_of_the_policys_own_is_added_as_it_is_over_rows_that_count():
    evaluation = Evaluation(OLD, losses={"router": torch.tensor([2.0, 4.0, math.nan])})
    terms, sums = made(evaluation, policy=policy_of(own=("router",)), lambda_pg=0.5)
    assert terms["router"] == pytest.approx(0.75 * 2 + 0.25 * 4)
    assert sums["loss/router"] == terms["router"]
    assert "router" not in made(evaluation)[0]  # not named as the policy's own
