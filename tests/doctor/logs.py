"""Small synthetic runs: rows of plain numbers, noise from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Value = float | Callable[[float], float]
"""A constant, or a function of progress 0..1."""


def rows(n: int = 80, noise: float = 0.02, seed: int = 0, **metrics: Value) -> list[dict[str, float]]:
    """n rows; names with "__" for "/". Functions get relative noise; constants stay exact."""
    rng = random.Random(seed)
    out: list[dict[str, float]] = []
    for i in range(n):
        row: dict[str, float] = {"step": float(i + 1)}
        for name, value in metrics.items():
            x = value(i / max(1, n - 1)) * (1 + rng.gauss(0, noise)) if callable(value) else value
            row[name.replace("__", "/")] = x
        out.append(row)
    return out


def line(a: float, b: float) -> Callable[[float], float]:
    return lambda t: a + (b - a) * t


def flat(a: float) -> Callable[[float], float]:
    return lambda t: a


def healthy(n: int = 80, **more: Value) -> list[dict[str, float]]:
    """A run that learns: reward .3 to .7, live groups, small KL."""
    base: dict[str, Any] = {
        "reward": line(0.3, 0.7),
        "reward_std": flat(0.3),
        "frac_reward_zero_std": flat(0.2),
        "kl": line(0.001, 0.05),
        "grad_norm": flat(0.4),
        "entropy": line(0.6, 0.3),
        "completions__mean_length": line(200, 180),
        "completions__clipped_ratio": flat(0.01),
        "learning_rate": 1e-6,
    }
    return rows(n, **(base | more))


def dull(n: int = 80, **more: Value) -> list[dict[str, float]]:
    """The same without any gain."""
    return healthy(n, **({"reward": flat(0.4), "kl": flat(0.02)} | more))
