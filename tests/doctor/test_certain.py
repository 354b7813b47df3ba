"""A certain finding has no exception: on truthful logs in which it does not hold, it is never said.

Each log is computed from samples: rewards are drawn, advantages normalised, log-ratios drawn with E[ratio] = 1. So no
normaliser, sampler, reference or reward is at fault, whatever the sizes, rhythms, columns and settings are.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from anygrpo.doctor import diagnose
from anygrpo.doctor.rules import RULES
from anygrpo.doctor.series import mean, std

TRUE_OF_SUCH_LOGS = {
    "on_policy",
    "mean_advantage",
    "group_size_bound",
    "too_short",
    "not_rl_log",
    "beta_from_loss",
    "kl_off",
}
"""What may be said of them because it is so: checked against what was drawn, below."""
FAULTS = {r.id for r in RULES.values()} - TRUE_OF_SUCH_LOGS
NORMALISERS = ("zscore", "batch", "ema", "rank", "centred")


def advantages(groups: list[list[float]], how: str, past: list[float]) -> list[list[float]]:
    """Advantages of [P][G] rewards under one of five normalisers."""
    flat = [r for g in groups for r in g]
    if how == "zscore":
        return [[(r - mean(g)) / (std(g) or math.inf) for r in g] for g in groups]
    if how == "centred":
        return [[r - mean(g) for r in g] for g in groups]
    if how == "batch":
        return [[(r - mean(g)) / (std(flat) or math.inf) for r in g] for g in groups]
    if how == "ema":
        return [[(r - mean(g)) / max(past[-1], 0.05) for r in g] for g in groups]
    ranks = [[sum(x < r for x in g) + 0.5 * (sum(x == r for x in g) - 1) for r in g] for g in groups]
    return [[2 * k / (len(g) - 1) - 1 if max(g) > min(g) else 0.0 for k in row] for row, g in zip(ranks, groups)]


def truthful(seed: int) -> tuple[list[dict[str, float]], dict[str, Any], dict[str, Any]]:
    """(rows, settings, what was drawn)."""
    rng = random.Random(seed)
    n, p, g = rng.randint(4, 30), rng.randint(4, 8), rng.choice((2, 4, 5, 8))
    how, binary = rng.choice(NORMALISERS), rng.random() < 0.5
    several = rng.random() < 0.5  # updates a batch
    beta, level, gain = rng.choice((0.0, 0.001, 0.04)), rng.uniform(0.1, 0.6), rng.uniform(-0.1, 0.4)
    every, limit = rng.choice((1, 1, 10)), rng.choice((64, 512))
    rows: list[dict[str, float]] = []
    past = [0.3]
    for i in range(n):
        chance = [min(0.95, max(0.05, level + gain * i / n + rng.gauss(0, 0.15))) for _ in range(p)]
        groups = [
            [float(rng.random() < c) if binary else rng.gauss(c, 0.2) for _ in range(g)] for c in chance
        ]  # fmt: skip
        flat = [r for grp in groups for r in grp]
        past.append(0.9 * past[-1] + 0.1 * std(flat))
        adv = [a for row in advantages(groups, how, past) for a in row]
        spread = rng.uniform(0.01, 0.3) if several else 0.0
        logs = [rng.gauss(-spread * spread / 2, spread) for _ in flat] if several else [0.0] * len(flat)
        ratios = [math.exp(x) for x in logs]
        kl = 2e-4 * i**1.5 * (1 + 0.1 * rng.random()) if i else 0.0
        cut = min(1.0, max(0.0, rng.gauss(0.05, 0.03)))
        policy = -mean([r * a for r, a in zip(ratios, adv)])
        row = {
            "step": float(every * (i + 1)), "reward": mean(flat), "reward/std": std(flat), "reward/max": max(flat),
            "reward/min": min(flat), "reward_std": mean([std(grp) for grp in groups]),
            "frac_reward_zero_std": mean([float(max(grp) == min(grp)) for grp in groups]), "advantage/mean": mean(adv),
            "advantage/std": std(adv), "advantage/max": max(adv), "advantage/min": min(adv), "ratio/mean": mean(ratios),
            "ratio/max": max(ratios), "log_ratio/mean": mean(logs), "log_ratio/abs_max": max(map(abs, logs)),
            "kl": kl, "loss": policy + beta * kl, "policy_loss": policy, "grad_norm": rng.uniform(0.1, 0.6),
            "learning_rate": 1e-6, "clip_ratio/region_mean": mean([float(abs(r - 1) > 0.2) for r in ratios]),
            "completions/clipped_ratio": cut, "completions/max_length": float(limit), "invalid/share": 0.0,
            "completions/mean_length": cut * limit + (1 - cut) * limit * rng.uniform(0.3, 0.6), "entropy": 0.5,
            "kl/behaviour": mean([r - 1 - x for r, x in zip(ratios, logs)]), "rewards/one/mean": 0.6 * mean(flat),
            "rewards/two/mean": 0.4 * mean(flat), "z2": mean([rng.gauss(0, 1) ** 2 for _ in range(400)]),
            "mismatch/ratio_mean": mean([math.exp(rng.gauss(-5e-5, 0.01)) for _ in range(20)]),
        }  # fmt: skip
        rows.append(row)
    keep = {"step", "reward"} | {k for k in rows[0] if rng.random() < 0.7}
    settings: dict[str, Any] = {"updates_per_batch": 4 if several else 1, "on_policy": not several}
    settings |= {"group_size": g} if rng.random() < 0.7 else {}
    settings |= {"normaliser": how} if rng.random() < 0.7 else {}
    settings |= {"beta": beta} if rng.random() < 0.5 else {}
    drawn = {"group": g, "how": how, "several": several, "beta": beta}
    return [{k: v for k, v in row.items() if k in keep} for row in rows], settings, drawn


def wrong(seed: int) -> list[str]:
    """Certain findings about a truthful log that are not so."""
    rows, settings, drawn = truthful(seed)
    out: list[str] = []
    for f in diagnose(rows, settings, format="jsonl").findings:
        if f.certainty != "certain":
            continue
        fault = f.rule in FAULTS and not true_by_chance(f.rule, rows)
        fault = fault or (f.rule == "group_size_bound" and (f.variant == "above" or f.facts["group"] != drawn["group"]))
        fault = fault or (f.rule == "on_policy" and drawn["several"])
        fault = fault or (
            f.rule == "beta_from_loss" and abs(float(f.facts["beta"]) - drawn["beta"]) > 0.05 * drawn["beta"]
        )
        fault = fault or (f.rule == "mean_advantage" and f.severity != "info")
        fault = fault or f.rule == "kl_off"
        out += [f"{f.rule}:{f.variant} {f.facts} {drawn} seed {seed}"] if fault else []
    return out


def true_by_chance(rule: str, rows: list[dict[str, float]]) -> bool:
    """Few prompts may all be dead in all of few rows: then it is so."""
    return rule == "constant_reward" and all(r.get("frac_reward_zero_std", 0) >= 1 for r in rows)


def test_300_truthful_logs_hear_nothing_certain_that_is_not_so() -> None:
    assert [text for seed in range(300) for text in wrong(seed)] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_10_000_truthful_logs_hear_nothing_certain_that_is_not_so() -> None:
    assert [text for seed in range(10_000) for text in wrong(seed)] == []


def test_the_logs_reach_what_the_rules_read() -> None:
    """No test that cannot fail: the same logs with one fault each are called by it."""
    rows, settings, _ = truthful(3)
    assert "markov_bound" in {f.rule for f in diagnose([r | {"ratio/mean": 1e9} for r in rows], settings).findings}
    certain = {
        f.rule
        for s in range(80)
        for f in diagnose(*truthful(s)[:2], format="jsonl").findings
        if f.certainty == "certain"
    }
    assert {"on_policy", "mean_advantage", "group_size_bound"} <= certain
