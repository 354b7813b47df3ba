"""Columns that name another model, a clock or a setting: no measurement of the policy is read from them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from anygrpo.doctor import diagnose
from anygrpo.doctor.canonical import concept
from anygrpo.doctor.columns import build
from anygrpo.doctor.log import Log
from anygrpo.doctor.synthetic import healthy


@pytest.mark.parametrize(
    "key",
    [
        "timing_s/adv",
        "timing_s/reward",
        "critic_model/lr",
        "critic_optimizer/lr",
        "value_head/grad_norm",
        "q_net/grad_norm",
        "ref_model/entropy",
        "policy_old/entropy",
        "router/entropy",
        "coef/entropy",
        "teacher/kl",
        "latent/kl",
        "config/kl",
        "weights/kl",
        "adam/beta",
        "prompts/length",
        "input/length",
        "disc/loss",
        "q/loss",
        "dev/reward",
        "baseline/reward",
        "loss/reward",
        "count/reward",
        "losses/rewards",
        "train/teacher_model/kl",
        "learners/critic_net/grad_norm",
        "queue/length",
        "fps/reward",
    ],
)
def test_a_heading_of_another_model_or_a_clock_lends_no_meaning(key: str) -> None:
    assert concept(key) is None


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("losses/approx_kl", "kl/behaviour"),
        ("actor_critic/entropy", "entropy"),
        ("agent/entropy", "entropy"),
        ("learner/policy_0/grad_norm", "grad_norm/total"),
    ],
)
def test_a_heading_of_the_policy_keeps_it(key: str, name: str) -> None:
    found = concept(key)
    assert found is not None
    assert found[0] == name


@pytest.mark.parametrize(
    "extra", [{"timing_s/adv": 0.4}, {"teacher/kl": 0.9}, {"critic_model/grad_norm": 0.0}, {"reward_batch_size": 64.0}]
)
def test_a_healthy_log_stays_healthy_beside_them(extra: dict[str, float]) -> None:
    rows = [row | extra for row in healthy(120)]
    assert diagnose(rows, format="jsonl").findings == diagnose(healthy(120), format="jsonl").findings


@pytest.mark.parametrize(
    "word", ["target", "temperature", "lr", "alpha", "coef", "batch_size", "latency", "tokens", "scale"]
)
def test_settings_of_the_scoring_are_no_parts_of_the_reward(word: str) -> None:
    assert concept(f"reward_{word}") is None


@pytest.mark.parametrize("key", ["reward_format", "rewards/latency/mean", "latency_reward", "reward/size"])
def test_parts_of_the_reward_stay_parts(key: str) -> None:
    found = concept(key)
    assert found is not None
    assert found[0].startswith("reward/component/")


def built(**columns: Any) -> Any:
    rows = [
        {"step": float(i), "reward": 0.3 + 0.01 * (i % 5)} | {k: v(i) if callable(v) else v for k, v in columns.items()}
        for i in range(20)
    ]
    return build(Log("x", "jsonl", rows))


def test_the_width_of_the_clip_in_a_column_is_a_setting() -> None:
    run = built(clip_ratio_low=0.2, clip_ratio_high=0.28)
    assert run.get("clip/fraction") is None
    assert (run.settings["clip"], run.settings["clip_high"]) == (0.2, 0.28)
    assert "clip_ratio_low" in run.unknown


def test_a_measured_share_of_clipped_tokens_stays_one() -> None:
    run = built(clip_low=lambda i: 0.01 * (1 + math.sin(i)), clip_high=0.0)
    assert run.get("clip/fraction").values[1] == pytest.approx(0.01 * (1 + math.sin(1)))


def test_a_clip_score_is_a_part_and_a_clip_of_the_reward_is_none() -> None:
    assert built(reward_clip=0.9).components == {}
    assert set(built(reward_clip=lambda i: 0.2 + 0.01 * (i % 3)).components) == {"clip"}


def test_a_batch_without_spread_has_none_in_its_groups() -> None:
    """reward/std of 0 in every row is that of the groups too; above 0 it is the batch's alone."""
    none = diagnose([{"step": i, "reward/mean": 0.4 + i % 3 / 50, "reward/std": 0.0, "kl": 0.01} for i in range(40)])
    some = diagnose([{"step": i, "reward/mean": 0.4 + i % 3 / 50, "reward/std": 0.1, "kl": 0.01} for i in range(40)])
    assert "constant_reward" in {f.rule for f in none.findings}
    assert some.run.get("reward/std_within") is None


def test_a_rate_of_successes_is_a_reward_and_a_rate_of_tokens_none() -> None:
    """A pass rate names a success; a token rate counts."""
    found = diagnose([{"step": i, "pass rate": 0.4, "token rate": 9.0, "kl": 0.01 + i / 100} for i in range(20)])
    assert {c.key for c in found.run.inferred.columns} == {"pass rate"}
