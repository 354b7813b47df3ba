"""What a log shows without its recipe: leaps of the first updates, a clip range too narrow, gains that KL can't pay."""

from __future__ import annotations

import math
from typing import Any

import pytest

from anygrpo.doctor import diagnose
from anygrpo.doctor.columns import build
from anygrpo.doctor.evidence.progress import payable
from anygrpo.doctor.findings import Finding
from anygrpo.doctor.log import Log
from anygrpo.doctor.synthetic import Rows, dull, evaluated, flat, healthy, line, with_rows


def weight(rows: Rows, settings: dict[str, Any] | None = None) -> list[Finding]:
    return [f for f in diagnose(rows, settings, format="jsonl").findings if f.severity != "info"]


def first(rows: Rows, settings: dict[str, Any] | None = None) -> tuple[str, str]:
    found = weight(rows, settings)
    return (found[0].rule, found[0].variant) if found else ("", "")


def leaping(entropy: float, dead: float = 0.9) -> Rows:
    """KL .7 and an entropy of `entropy` after the first update, of 2 before it."""
    return with_rows(
        healthy(60, kl=flat(0.7), entropy=flat(entropy), frac_reward_zero_std=flat(dead), reward=flat(0.6)),
        {0: {"kl": 0.0, "entropy": 2.0}},
    )


def test_a_leap_of_the_first_update_comes_before_the_dead_groups_it_leaves() -> None:
    assert first(leaping(0.1)) == ("lr_too_large", "leap")
    assert first(leaping(1.6))[1] != "leap"  # the same KL, and the policy is still open
    assert first(healthy(60))[0] == ""


def clipped(share: float, kl: float) -> Rows:
    return healthy(60, clip_fraction=flat(share), approx_kl=flat(kl), reward=line(0.2, 0.8))


def test_much_clipped_near_1_bounds_the_clip_range() -> None:
    """Chebyshev: share x range^2 <= E d^2 = 2 KL: .4 beyond a range at KL 2e-4 leaves a range of at most .0316."""
    assert first(clipped(0.4, 2e-4)) == ("clip_saturated", "inside")
    found = weight(clipped(0.4, 2e-4))[0]
    assert float(found.facts["range"]) == pytest.approx(math.sqrt(2 * 2e-4 / 0.4), rel=0.05)
    for fits in (clipped(0.4, 0.02), clipped(0.1, 2e-5)):  # a range of .2, and much is a note where the reward rises
        assert "clip_saturated" not in {f.rule for f in weight(fits)}
    for known in ({"clip": 0.2}, {"objective": "gspo"}):
        assert first(clipped(0.4, 2e-4), known)[0] == ""


def columns(rows: Rows) -> Any:
    return build(Log("x", "jsonl", rows))


def test_pinsker_bounds_what_a_kl_can_pay() -> None:
    """sqrt(200 tokens x 1e-6 / 2) = .01 of a reward between 0 and 1."""
    run = columns(dull(120, kl=1e-6, completions__mean_length=200.0))
    assert payable(run, run.get("kl/reference")) == pytest.approx(0.01, rel=1e-6)


def test_a_gain_that_the_kl_cannot_have_paid_is_no_learning() -> None:
    """The reward creeps up by .03 (its prompts changed) while the policy stands still."""
    still = dull(160, kl=flat(1e-7), reward=line(0.4, 0.44))
    assert first(still) == ("lr_too_small", "bound")
    assert first(dull(160, kl=flat(1e-7), reward=line(0.3, 0.6)))[0] == ""  # worth wanting: nobody calls it nothing
    assert first(dull(160, kl=line(1e-4, 0.05), reward=line(0.4, 0.44)))[0] != "lr_too_small"


def test_a_kl_weight_of_ten_holds_the_policy_though_it_creeps() -> None:
    held = dull(120, kl=flat(1e-5), beta=10.0, reward=line(0.4, 0.43))
    held = evaluated(held, eval_accuracy=line(0.25, 0.3))
    assert first(held) == ("kl_dominates", "held")
    assert first([row | {"beta": 0.01} for row in held])[0] != "kl_dominates"


def test_a_gradient_back_at_its_usual_size_is_no_spike() -> None:
    """Most rows of a solved task have no gradient; those that have one are no spikes of it."""
    solved = healthy(120, grad_norm=lambda t: 0.4 if t < 0.3 else 0.002, reward=flat(0.9))
    for k, at in enumerate((50, 70, 90, 110)):
        solved[at]["grad_norm"] = 0.5
        for i in range(at + 1, 120):
            solved[i]["reward"] = 0.9 - 0.05 * (k + 1)
    assert "grad_spikes" not in {f.rule for f in diagnose(solved).findings}
    for at in (50, 70, 90, 110):
        solved[at]["grad_norm"] = 40.0
    assert "grad_spikes" in {f.rule for f in diagnose(solved).findings}


def test_groups_that_are_all_equal_at_the_bottom_are_not_mastered() -> None:
    """A reward that fell to 0: the best is the worst, and counts as both."""
    lost = healthy(60, reward=line(0.3, 0.0), frac_reward_zero_std=line(0.4, 1.0))
    lost = [
        row | {"groups/all_best": float(i > 30), "groups/all_worst": float(i <= 30) * 0.5} for i, row in enumerate(lost)
    ]
    assert "mastered_groups" not in {f.rule for f in weight(lost)}


def test_the_luckiest_of_many_evaluations_is_no_peak() -> None:
    """25 evaluations of one policy with a standard error of .09: the best is .2 too good."""
    lucky = [0.5, 0.46, 0.41, 0.46, 0.57, 0.46, 0.57, 0.6, 0.47, 0.59, 0.59, 0.58, 0.46, 0.46, 0.64, 0.49, 0.39, 0.51,
             0.35, 0.7, 0.61, 0.41, 0.31, 0.40, 0.40]  # fmt: skip
    rows = healthy(125, reward=flat(0.5))
    for i, x in enumerate(lucky):
        rows[5 * i] |= {"eval_reward": x, "eval_reward_se": 0.09}
    assert first(rows)[0] == "no_learning"
    learnt = healthy(125, reward=line(0.3, 0.7))
    for i, x in enumerate(lucky):
        learnt[5 * i] |= {"eval_reward": x, "eval_reward_se": 0.09}
    assert first(learnt)[0] == "validation_drop"
