"""Small made-up runs, noise from a seed: what the rules' own cases are written with."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

Value = float | Callable[[float], float]
"""A constant, or a function of progress 0..1."""
Rows = list[dict[str, float]]
Case = tuple[Rows, dict[str, Any]]
"""Rows of a log and the settings of its run."""


def rows(n: int = 80, noise: float = 0.02, seed: int = 0, **metrics: Value) -> Rows:
    """n rows; names with "__" for "/". Functions get relative noise; constants stay exact."""
    rng = random.Random(seed)
    out: Rows = []
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


def wiggle(a: float, size: float = 0.01) -> Callable[[float], float]:
    """A level with small deterministic ups and downs."""
    return lambda t: a + size * math.sin(40 * t + 1)


def healthy(n: int = 80, noise: float = 0.02, **more: Value) -> Rows:
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
    merged: dict[str, Any] = base | more
    return rows(n, noise, 0, **merged)


def dull(n: int = 80, **more: Value) -> Rows:
    """The same without any gain."""
    merged: dict[str, Any] = {"reward": flat(0.4), "kl": flat(0.02)} | more
    return healthy(n, 0.02, **merged)


def with_rows(base: Rows, changes: dict[int, dict[str, float]]) -> Rows:
    """Some rows (0-based) changed."""
    return [{**row, **changes.get(i, {})} for i, row in enumerate(base)]


def evaluated(base: Rows, every: int = 10, **evals: Callable[[float], float]) -> Rows:
    """Evaluation columns in every tenth row: functions of progress."""
    n = len(base)
    return [
        {**row, **({k.replace("__", "/"): f(i / (n - 1)) for k, f in evals.items()} if i % every == 0 else {})}
        for i, row in enumerate(base)
    ]


def spiky(harm: bool) -> Rows:
    """Four gradient spikes; each followed by a step in the reward, or not."""
    base = healthy(120, reward=flat(0.5))
    for k, at in enumerate((25, 50, 75, 100)):
        base[at]["grad_norm"] = 40.0
        if harm:
            for i in range(at + 1, len(base)):
                base[i]["reward"] = 0.5 - 0.1 * (k + 1)
    return base
