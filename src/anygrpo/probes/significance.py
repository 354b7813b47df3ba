"""Paired comparisons of two runs on the same prompts: what differs, how surely, and what could have been seen."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_RESAMPLES = 10_000
_SEEN = 1.959964 + 0.841621
"""z of a two-sided 5% test plus z of 80% power."""


@dataclass(frozen=True)
class Paired:
    """Mean of b - a over n pairs.

    Attributes:
        low, high: 95% percentile bootstrap over prompts.
        detectable: smallest true difference that n prompts show with 80% power at 5%.
        needed: prompts needed to show the difference that was measured; None where it is 0.
    """

    n: int
    mean_a: float
    mean_b: float
    difference: float
    low: float
    high: float
    detectable: float
    needed: int | None


def paired(a: Tensor, b: Tensor, seed: int = 0) -> Paired:
    """Compare values [n] of the same n prompts.

    The interval resamples prompts, 10,000 times. detectable = (z.975 + z.8) sd(b - a) / sqrt(n), and needed is the n
    at which that equals the measured difference.
    """
    gap = (b - a).double()
    n = len(gap)
    generator = torch.Generator().manual_seed(seed)
    means = torch.cat([_resampled(gap, count, generator) for count in _chunks(_RESAMPLES, n)])
    low, high = torch.quantile(means, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    sd, mean = float(gap.std()) if n > 1 else 0.0, float(gap.mean())
    needed = math.ceil((_SEEN * sd / mean) ** 2) if mean else None
    detectable = _SEEN * sd / math.sqrt(n)
    return Paired(n, float(a.double().mean()), float(b.double().mean()), mean, low, high, detectable, needed)


def _resampled(gap: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return gap[torch.randint(len(gap), (count, len(gap)), generator=generator)].mean(1)


def _chunks(total: int, n: int) -> list[int]:
    """`total` in pieces whose index tables stay small."""
    size = max(1, min(total, 2_000_000 // max(n, 1)))
    return [min(size, total - done) for done in range(0, total, size)]


@dataclass(frozen=True)
class McNemar:
    """Prompts that only one of the two runs gets right, and the exact two-sided p-value of that split."""

    only_a: int
    only_b: int
    p: float


def mcnemar(a: Tensor, b: Tensor) -> McNemar:
    """Exact McNemar test of two bool [n]: under no difference each discordant prompt falls either way like a coin."""
    only_a, only_b = int((a & ~b).sum()), int((~a & b).sum())
    n, k = only_a + only_b, min(only_a, only_b)
    tail = sum(math.comb(n, i) for i in range(k + 1)) / 2**n
    return McNemar(only_a, only_b, min(1.0, 2 * tail))
