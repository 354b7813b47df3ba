"""Kinds that public logs showed: what was misread in them, each as a small log of its own."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from anygrpo.doctor import diagnose, diagnose_log, read
from anygrpo.doctor.canonical import concept
from anygrpo.doctor.columns import build
from anygrpo.doctor.findings import Finding
from anygrpo.doctor.log import Log, number
from anygrpo.doctor.readers.lines import pair_row
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


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("train.policy.kl_ref", "kl/reference"),
        ("gold accuracy", "eval/gold_accuracy"),
        ("true_reward", "eval/true_reward"),
        ("FID", "eval/fid"),
        ("R-Precision", "eval/r_precision"),
        ("MM Dist", "eval/mm_dist"),
        ("裁剪", "clip/fraction"),
        ("最大对数比率", "log_ratio/abs_max"),
        ("train/truncated_frac", "truncated/share"),
    ],
)
def test_more_names(key: str, name: str) -> None:
    assert (concept(key) or ("",))[0] == name


def test_a_gold_score_that_falls_while_the_reward_rises() -> None:
    rng = random.Random(8)
    rows = [{**r, "gold accuracy": 0.41 - 0.0008 * i + rng.gauss(0, 0.004)} for i, r in enumerate(healthy(120))]
    assert heavy(rows)[0] in ("reward_hacking", "overfitting")


def test_a_distance_is_better_when_it_falls() -> None:
    """FID from .42 to 1.3 beside a rising reward is a hack; from 1.3 to .42 it is not, and is told as "-FID"."""
    rng = random.Random(9)
    rows = healthy(60)
    worse = [{**r, "FID": 0.42 + 0.015 * i + rng.gauss(0, 0.01)} for i, r in enumerate(rows)]
    better = [{**r, "FID": 1.3 - 0.015 * i + rng.gauss(0, 0.01)} for i, r in enumerate(rows)]
    told = diagnose(worse, format="jsonl").first
    assert told
    assert (told.rule, told.facts["name"]) == ("reward_hacking", "-FID")
    assert heavy(better) == []


def test_the_only_reward_is_the_reward_though_named_like_a_part() -> None:
    rows = [{"train/acc_reward": 0.4 + 0.001 * i, "train/kl_ref": 0.01, "train/entropy": 0.5} for i in range(40)]
    assert build(Log("", "jsonl", [dict(r) for r in rows])).get("reward/mean")


def test_one_row_whose_answers_were_all_cut_off() -> None:
    """That is said before the refusal of trends; of nine in ten it is said behind it."""
    row = {"reward": 0.18, "reward_std": 0.2, "completions/mean_length": 2048.0, "completions/max_length": 2048.0}
    assert heavy([{**row, "completions/clipped_ratio": 1.0}]) == ["truncation"]
    assert "too_short" in heavy([{**row, "completions/mean_length": 1900.0, "completions/clipped_ratio": 0.9}])


def test_a_ceiling_of_everything_is_told_once() -> None:
    rows = [{**r, "reward": 1.98 + 0.02 * (i % 6 != 0), "reward_std": 0.03 * (i % 6 == 0), "grad_norm": 0.01,
             "frac_reward_zero_std": 0.95 + 0.05 * (i % 6 != 0), "rewards/acc/mean": 0.98 + 0.02 * (i % 6 != 0),
             "rewards/format/mean": 1.0} for i, r in enumerate(healthy(90))]  # fmt: skip
    assert heavy(rows) == ["mastered_groups"]


def test_log_ratios_of_twenty_come_before_a_sign() -> None:
    rows = [
        {**r, "reward": 0.5 - 0.004 * i, "max_abs_log_ratio": 5 + 0.4 * i, "kl": 0.02 + 0.03 * i}
        for i, r in enumerate(healthy(60))
    ]
    assert heavy(rows)[0] == "log_ratio_explosion"


def test_a_spread_that_never_was_is_blown_up() -> None:
    """Spread .0004 of a level of .5 under normalised advantages; where the reward rose all the same it is none."""
    rng = random.Random(10)
    row = {"reward_std": 0.0004, "advantage_std": 0.99, "grad_norm": 0.9, "kl": 0.1}
    noise = [{**row, "reward": 0.5 + rng.gauss(0, 0.0005)} for _ in range(100)]
    assert found(noise)["phantom_advantages"].variant == "level"
    rise = [{**row, "reward": 0.5 + 0.001 * i} for i in range(100)]
    assert "phantom_advantages" not in found(rise)


def test_several_statistics_of_one_metric_behind_one_name() -> None:
    row = pair_row("Step  12  reward  0.2256  len(mean/max)  498.2/ 512  loss  0.0005")
    assert (row["len/mean"], row["len/max"], row["reward"], row["step"]) == (498.2, 512.0, 0.2256, 12.0)
    assert pair_row("reward=0.3 len(mean/max)=310/512")["len/max"] == 512.0


def test_a_chinese_counter_shows_a_wrong_reference_in_three_rows(tmp_path: Path) -> None:
    rows = ((1, 0.412, 1.31), (2, 0.408, 1.29), (3, 0.415, 1.33))
    text = "\n".join(f"步骤 {i}：奖励 {r}，KL {kl}，梯度范数 0.52" for i, r, kl in rows)
    (tmp_path / "log.txt").write_text(f"跑到第三步就不对了：\n{text}\n", "utf-8")
    first = diagnose_log(read(tmp_path / "log.txt")).first
    assert first
    assert first.rule == "wrong_reference"


def test_a_mean_with_its_spread_in_one_cell(tmp_path: Path) -> None:
    rows = "\n".join(f"| {10 * i} | {0.5 - 0.004 * i:.3f} ± 0.21 | {0.01 + 0.006 * i:.4f} |" for i in range(1, 61))
    (tmp_path / "table.md").write_text(f"| step | mean reward ± sd | kl |\n|---|---|---|\n{rows}\n", "utf-8")
    reward = build(read(tmp_path / "table.md")).get("reward/mean")
    assert reward
    assert (reward.values[0], len(reward)) == (0.496, 60)
    assert number("0.5+/-0.1") == 0.5


def test_the_console_of_nemo_rl_shows_a_mismatch(tmp_path: Path) -> None:
    lines = ("  • Loss: 0.01", "  • Generation KL Error: 0.35", "  • Avg Reward: {reward:.4f}", "")
    text = ""
    for i in range(1, 41):
        text += f"===== Step {i}/40 =====\n" + "\n".join(lines).format(reward=0.3 + i % 3 / 99) + "\n"
    (tmp_path / "console.log").write_text(text, "utf-8")
    first = diagnose_log(read(tmp_path / "console.log")).first
    assert first
    assert first.rule == "sampler_mismatch"
