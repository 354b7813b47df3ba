"""Kinds that public logs showed: what was misread in them, each as a small log of its own."""

from __future__ import annotations

import math
import random

import pytest

from anygrpo.doctor import diagnose
from anygrpo.doctor.canonical import concept
from anygrpo.doctor.columns import build
from anygrpo.doctor.findings import Finding
from anygrpo.doctor.log import Log
from anygrpo.doctor.synthetic import healthy, spiky

Rows = list[dict[str, float]]


def found(rows: Rows) -> dict[str, Finding]:
    return {f.rule: f for f in diagnose(rows, format="jsonl").findings}


def heavy(rows: Rows) -> list[str]:
    return [rule for rule, f in found(rows).items() if f.severity != "info"]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("policy_ratio", "ratio/mean"),
        ("actor/approxkl", "kl/behaviour"),
        ("advantage/zero_rate", "groups/dead"),
        ("length/cap_hit_rate", "truncated/share"),
        ("format_reward_avg", "reward/component/format"),
        ("train/reward_step", "reward/mean"),
        ("train/kl_step", "kl/reference"),
        ("reward/selected_std", "reward/component_std/selected"),
    ],
)
def test_names(key: str, name: str) -> None:
    assert (concept(key) or ("",))[0] == name


def test_a_mean_per_step_is_not_the_value_of_a_step() -> None:
    assert concept("loss_per_step") != concept("loss")


def test_clip_shares_that_add_up_are_no_reward() -> None:
    rng = random.Random(1)
    rows = [
        {
            "a/clipfrac_low": (lo := rng.random() / 9),
            "a/clipfrac_hi": (hi := rng.random() / 9),
            "a/clipfrac_all": lo + hi,
        }
        | {"kl": 0.01, "entropy": 0.5}
        for _ in range(40)
    ]
    assert build(Log("", "jsonl", [dict(r) for r in rows])).get("reward/mean") is None


def test_the_mean_with_a_spread_beside_it_is_the_reward() -> None:
    rng = random.Random(2)
    rows = [
        {"reward/chosen_of_two_mean": 0.3 + 0.01 * i + rng.gauss(0, 0.02), "reward/chosen_of_two_std": 0.4,
         "reward/quality_mean": rng.random(), "kl": 0.01}
        for i in range(40)
    ]  # fmt: skip
    run = build(Log("", "jsonl", [dict(r) for r in rows]))
    reward, spread = run.get("reward/mean"), run.get("reward/std")
    assert reward
    assert reward.key == "reward/chosen_of_two_mean"
    assert spread
    assert spread.key == "reward/chosen_of_two_std"


def test_a_failure_rate_is_no_witness_against_the_reward() -> None:
    """The reward is one of its own parts; the share of failed judgements stays low: nothing is hacked."""
    rng = random.Random(3)
    rows = [{**r, "reward/success": r["reward"], "reward/checker_failure_rate": 0.01 * rng.random()} for r in healthy()]
    assert "reward_hacking" not in found(rows)


def test_a_witness_at_its_ceiling_cannot_show_the_gain() -> None:
    rng = random.Random(4)
    rows = [{**r, "reward/success": r["reward"], "reward/parses": 0.96 + 0.03 * rng.random()} for r in healthy()]
    assert "reward_hacking" not in found(rows)


def test_kl_that_comes_back_after_a_spike_changed_nothing() -> None:
    """The KL spikes in the same row as the gradient, and in a row near it; its level stays."""
    rows = spiky(harm=False)
    for i, row in enumerate(rows):
        big = row["grad_norm"] > 5
        row["kl"] = 0.001 * (1 + 0.1 * math.sin(3 * i)) + 0.02 * big + 0.02 * (i % 37 == 0)
    assert "grad_spikes" not in found(rows)


def at_the_cap(of_rows: float, last: float = 1.0) -> Rows:
    """Mean lengths of which a share is exactly 200, the limit; in the last quarter `last` times that share."""
    rng = random.Random(5)
    rows: Rows = []
    for i in range(100):
        share = of_rows * (last if i >= 75 else 1.0)
        length = 200.0 if rng.random() < share else 150 + 45 * rng.random()
        rows.append({"step": i + 1, "reward": 0.2 + 0.3 * rng.random(), "completion_length": length, "kl": 1e-3})
    return rows


def test_a_mean_length_at_its_ceiling_in_a_third_of_the_rows_is_the_limit() -> None:
    assert found(at_the_cap(0.6))["truncation"].variant == "mean"
    assert "truncation" not in found(at_the_cap(0.1))
    assert "truncation" not in found(at_the_cap(0.6, last=0.1))  # the answers have become shorter than it


def test_answers_of_one_fixed_length_are_not_cut_off() -> None:
    assert "truncation" not in found([{**r, "completion_length": 64.0} for r in healthy(100)])


def evaluated(values: list[float]) -> Rows:
    """Rewards that go nowhere, an evaluation every tenth row."""
    rng = random.Random(6)
    return [
        {"step": i, "reward": 0.6 + rng.gauss(0, 0.1)} | ({"eval_acc": values[i // 10]} if i % 10 == 0 else {})
        for i in range(10 * len(values))
    ]


def test_all_later_evaluations_below_all_earlier_ones() -> None:
    """11 evaluations split 4 to 7: C(11, 4) = 330 orders, 11 splits tried: once in 30."""
    fell = found(evaluated([50.8, 56.2, 54.8, 45.8, 32.2, 35.0, 9.4, 28.4, 29.6, 17.6, 35.0]))["validation_drop"]
    assert (fell.variant, fell.facts["odds"]) == ("halves", 30)
    assert "validation_drop" not in found(evaluated([50.8, 56.2, 33, 45.8, 54, 35.0, 49.4, 58.4, 29.6, 47.6, 35.0]))
    little = found(evaluated([0.7, 0.71, 0.7, 0.69, 0.68, 0.685, 0.68, 0.675])).get("validation_drop")
    assert little is None or little.variant != "halves"  # 3% of its level


def test_advantages_of_a_policy_that_was_lost_are_a_consequence() -> None:
    rows = healthy(200)
    for i, row in enumerate(rows):
        gone = i > 80
        row |= {"reward": 0.0 if gone else row["reward"], "adv_std": 0.0 if gone else 0.9, "kl": 25.0 if gone else 0.1}
    assert heavy(rows)[0] == "kl_blowup"
    assert "advantage_compressed" not in found(rows)


def test_where_only_evaluations_have_a_reward_they_are_the_reward() -> None:
    rng = random.Random(7)
    rows = [{"eval/episode_reward": 250 - i + rng.gauss(0, 5), "training/kl_mean": 0.01} for i in range(80)]
    run = build(Log("", "jsonl", [dict(r) for r in rows]))
    assert run.get("reward/mean")
    assert run.inferred.columns[0].key == "eval/episode_reward"


@pytest.mark.parametrize("cut", [40, 80, 120, 150, 180])
def test_rewards_that_drop_to_nothing_at_once(cut: int) -> None:
    """At any place of the run, and with the dead groups that it brings named as the consequence."""
    rows = healthy(200)
    for i, row in enumerate(rows):
        row.pop("kl")
        if i > cut:
            row |= {"reward": 0.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0, "grad_norm": 0.0}
    assert heavy(rows) in (["reward_fell"], ["late_collapse"])


def test_rewards_that_wander_do_not_drop_at_once() -> None:
    """AR(1) with .8, 20 to 600 rows, going nowhere: at most 1 in 100 is called fallen at once."""
    called = 0
    for seed in range(300):
        rng = random.Random(seed)
        x, rows = rng.gauss(0, 1), list[dict[str, float]]()
        for _ in range(rng.choice([20, 40, 60, 100, 200, 600])):
            x = 0.8 * x + 0.6 * rng.gauss(0, 1)
            rows.append({"reward": 0.5 + 0.05 * x})
        fell = found(rows).get("reward_fell")
        called += fell is not None and fell.variant == "step"
    assert called <= 3


def test_episodes_that_are_solved_sooner_are_no_shrunken_answers() -> None:
    key = "rollout/ep_len_mean"
    rows = [{**r, key: 900 - 4.0 * i} for i, r in enumerate(healthy(200))]
    for row in rows:
        del row["completions/mean_length"]
    assert build(Log("", "jsonl", [dict(r) for r in rows])).get("length/mean")
    assert "length_collapse" not in found(rows)


def test_a_supervised_loss_that_fell_and_rests_has_converged() -> None:
    """exp(-6 t): a quarter of its start lost, flat in the last 30%, the reward higher meanwhile."""
    rows = [{**r, "loss_sup": 0.033 + 0.012 * math.exp(-i / 20)} for i, r in enumerate(healthy(120))]
    assert found(rows)["sup_loss_flat"].severity == "info"
    still = [{**r, "loss_sup": 0.045 + 0.0001 * math.sin(i)} for i, r in enumerate(healthy(120))]
    assert found(still)["sup_loss_flat"].severity == "warning"


def test_one_of_several_validations_that_wobbles_is_no_drop() -> None:
    """Three measures, two that rise; in 40 drawings the third, flat, is called fallen at most once."""
    called = 0
    for seed in range(40):
        rng = random.Random(seed)
        rows = [dict(r) for r in healthy(120)]
        for i in range(9, 120, 10):
            up = i / 120
            rows[i] |= {
                "val/a/acc": 0.2 + 0.1 * up + rng.gauss(0, 0.02),
                "val/b/acc": 0.6 + 0.1 * up + rng.gauss(0, 0.01),
                "val/c/acc": 0.4 + rng.gauss(0, 0.025),
            }
        called += "validation_drop" in found(rows)
    assert called <= 1
