"""Acting needs persistence and a second witness: healthy runs are left alone, explosions are not."""

from __future__ import annotations

import random

from anygrpo.watch.acting import Actor
from anygrpo.watch.levers import Setting, ShadowLevers


def healthy_run(seed: int, n: int = 200) -> list[dict[str, float]]:
    """A run that learns; a third with a sampler that mismatches on rare tokens, a third with 2% outlier rows."""
    rng = random.Random(seed)
    kind, level = seed % 3, rng.uniform(4.0, 15.0)
    rows = []
    for step in range(n):
        row = {
            "step": step, "reward/mean": 0.3 + 0.4 * step / n + rng.gauss(0, 0.05),
            "log_ratio/abs_max": abs(rng.gauss(1.0, 0.5)), "clip/fraction": abs(rng.gauss(0.03, 0.02)),
            "kl/behaviour": abs(rng.gauss(0.002, 0.001)), "grad_norm/total": rng.lognormvariate(-1, 0.4),
            "kl/reference": 1e-3 * step**0.5,
        }  # fmt: skip
        if kind == 1:
            row["log_ratio/abs_max"] = level * rng.lognormvariate(0, 0.15)
        elif kind == 2 and rng.random() < 0.02:
            row |= {"log_ratio/abs_max": rng.uniform(6, 30), "grad_norm/total": 8.0}
        rows.append(row)
    return rows


def actor() -> Actor:
    return Actor(ShadowLevers(), 5)


def test_none_of_300_healthy_runs_is_touched() -> None:
    touched = []
    for seed in range(300):
        made = actor()
        for row in healthy_run(seed):
            made.consider(row, [])
        if made.actions:
            touched.append(seed)
    assert touched == []


def test_an_explosion_that_lasts_is_acted_on_within_three_rows() -> None:
    for seed in range(20):
        made = actor()
        for row in healthy_run(3 * seed, 60):
            made.consider(row, [])
        acted = None
        for k in range(6):
            row = {
                "step": 60 + k,
                "log_ratio/abs_max": 30.0,
                "clip/fraction": 0.7,
                "reward/mean": 0.1,
                "grad_norm/total": 9.0,
            }
            if made.consider(row, []) is not None:
                acted = k
                break
        assert acted is not None
        assert acted <= 2


def test_without_a_second_witness_nothing_is_done() -> None:
    made = actor()
    for row in healthy_run(0, 60):
        made.consider(row, [])
    for k in range(10):
        calm = {
            "step": 60 + k,
            "log_ratio/abs_max": 8.0,
            "clip/fraction": 0.03,
            "grad_norm/total": 0.35,
            "reward/mean": 0.45,
        }
        assert made.consider(calm, []) is None


def test_shadow_levers_pull_nothing() -> None:
    levers = ShadowLevers()
    levers.turn(Setting(0.1))
    levers.stop("reason")
    assert levers.roll_back(3) is None
