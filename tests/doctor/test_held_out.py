"""Which held-out measures count, which way is up, and when they fell: each from a small log or drawn numbers."""

from __future__ import annotations

import math
import random

import pytest

from anygrpo.doctor import diagnose
from anygrpo.doctor.columns import Columns, build
from anygrpo.doctor.evidence.progress import outcomes
from anygrpo.doctor.findings import Finding
from anygrpo.doctor.log import Log
from anygrpo.doctor.rules.validation_drop import fell_for_good
from anygrpo.doctor.series import Series
from anygrpo.doctor.synthetic import healthy

Rows = list[dict[str, float]]


def run_of(rows: Rows) -> Columns:
    return build(Log("", "jsonl", [dict(r) for r in rows]))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fidelity", None),
        ("kidney", None),
        ("lpips_reward", "higher"),
        ("string_matching_score", "higher"),
        ("psnr", "higher"),
        ("psnr/rain", "higher"),
        ("psnr_y", "higher"),
        ("ssim_set5", "higher"),
        ("lpips/set14", "lower"),
        ("fid_50k_full", "lower"),
        ("inversion_lpips", "lower"),
        ("neg_lpips", None),
        ("r_precision_top3", "higher"),
        ("fid", "lower"),
        ("clean_fid", "lower"),
        ("fid_50k", "lower"),
        ("fid_score", "lower"),
        ("kid_mean", "lower"),
        ("motion/lpips", "lower"),
        ("lpips_vgg", "lower"),
        ("mm_distance", "lower"),
        ("matching_score", "lower"),
    ],
)
def test_which_held_out_measures_are_better_lower(name: str, kind: str | None) -> None:
    """A rise of "fidelity" says nothing bad: only whole names are distances."""
    rows = [{**r, f"eval/{name}": 0.2 + 0.005 * i} for i, r in enumerate(healthy(80))]
    seen = [s.key for s in outcomes(run_of(rows)).values()]
    assert seen == {None: [], "higher": [f"eval/{name}"], "lower": [f"-eval/{name}"]}[kind]
    heavy = {f.rule for f in diagnose(rows, format="jsonl").findings if f.severity != "info"}
    assert bool({"reward_hacking", "overfitting"} & heavy) is (kind == "lower")


@pytest.mark.parametrize(("correlation", "most"), [(0.0, 2), (0.8, 16)])
def test_evaluations_that_wander_seldom_fall_for_good(correlation: float, most: int) -> None:
    """AR(1), 16 evaluations, 200 drawings: 5% are 10 and 16 are 2 standard errors above; without `APART` it is 37."""
    rng, called = random.Random(4), 0
    for _ in range(200):
        values = [rng.gauss(0, 1)]
        for _ in range(15):
            values.append(correlation * values[-1] + math.sqrt(1 - correlation**2) * rng.gauss(0, 1))
        evals = Series("eval/acc", "eval/acc", tuple(range(16)), tuple(values))
        called += fell_for_good(Columns("", "jsonl", "generic", 16, {"eval/acc": evals})) is not None
    assert called <= most


@pytest.mark.parametrize(("more", "odds"), [(0, 804), (2, 268)])
def test_the_odds_count_every_measure(more: int, odds: int) -> None:
    """C(16, 8) = 12870 orders, 16 splits: once in 804; of 3 measures once in 268."""
    falls = [0.8, 0.81, 0.79, 0.8, 0.82, 0.8, 0.81, 0.79, 0.4, 0.41, 0.39, 0.4, 0.42, 0.4, 0.41, 0.39]
    rest = [0.5, 0.51, 0.49, 0.5] * 4
    rows = [
        {"step": i, "reward": 0.6, "eval/a_acc": x} | {f"eval/{j}_acc": y for j in range(more)}
        for i, (x, y) in enumerate(zip(falls, rest))
    ]
    drop = fell_for_good(run_of(rows))
    assert isinstance(drop, Finding)
    assert drop.facts["odds"] == odds


@pytest.mark.parametrize(("key", "cut"), [("rollout/ep_len_mean", False), ("response_length", True)])
def test_episodes_that_last_to_their_clock_are_not_cut_off(key: str, cut: bool) -> None:
    """A pole that is held for all 500 steps is solved; answers whose mean is the limit are cut."""
    rows = [{**r, key: min(500.0, 20.0 + 6 * i)} for i, r in enumerate(healthy(160))]
    rows = [{k: x for k, x in r.items() if not k.startswith("completions/")} for r in rows]
    assert run_of(rows).get("length/mean")
    assert ("truncation" in {f.rule for f in diagnose(rows, format="jsonl").findings}) is cut


@pytest.mark.parametrize("key", ["gradient_step", "grad_step", "train/gradient_step"])
def test_a_counter_of_gradient_steps_is_no_gradient(key: str) -> None:
    run = run_of([{"reward": 0.3 + 0.01 * i, "kl": 0.01, key: 4.0 * i} for i in range(20)])
    assert run.get("grad_norm/total") is None
    assert key not in run.unknown
    kept = run_of([{"reward": 0.3 + 0.01 * i, "kl": 0.01, "grad_norm_step": 0.4} for i in range(20)])
    assert kept.get("grad_norm/total") is not None


@pytest.mark.parametrize("key", ["gold_reward", "true_reward", "human_reward", "gold_score"])
def test_the_only_reward_of_a_log_is_its_reward(key: str) -> None:
    rows = [{key: 0.3 + 0.01 * i, "kl": 0.01 + 0.001 * (i % 3), "loss": 0.001 * (i % 5)} for i in range(20)]
    reward = run_of(rows).get("reward/mean")
    assert reward
    assert reward.key == key
    both = run_of([r | {"reward": 0.5 + 0.02 * i} for i, r in enumerate(rows)])
    assert both.series["reward/mean"].key == "reward"
    several = run_of([r | {"oracle_reward": 0.5 + 0.02 * i} for i, r in enumerate(rows)])
    assert several.get("reward/mean") is None  # nobody says which


@pytest.mark.parametrize(("coverage", "rows", "told"), [(0.049, 20, True), (0.05, 20, False), (0.01, 19, False)])
def test_a_file_that_says_next_to_nothing_of_the_policy(coverage: float, rows: int, told: bool) -> None:
    """Twenty rows or more, the mean of the last quarter (rows 16 to 20) below the limit of `select evaluate`."""
    log = [{**r, "offline/coverage": 0.5 if i < 15 else coverage} for i, r in enumerate(healthy(rows))]
    found = {f.rule: f for f in diagnose(log, format="jsonl").findings}.get("off_support")
    assert (found is not None) is told
    if found:
        assert found.facts["coverage"] == pytest.approx(coverage)
        assert list(found.rows) == [16, 17, 18, 19, 20]
