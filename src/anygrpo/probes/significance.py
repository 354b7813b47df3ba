"""Paired comparisons of two runs on the same prompts: what differs, how surely, and what could have been seen."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from anygrpo.core.intervals import POWER, alike, difference, fewest, largest
from anygrpo.core.tails import skewed, skewness, t_quantile


@dataclass(frozen=True)
class Paired:
    """Mean of b - a over n pairs.

    Attributes:
        low, high: 95%, over prompts: another seed of either run is not covered.
        detectable: smallest true difference that n prompts show with 80% power at 5%; never 0.
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


def paired(a: Tensor, b: Tensor) -> Paired:
    """Compare values [n] of the same n prompts: the interval of the mean gap is that of `core.intervals.difference`.

    needed is the number of prompts n at which the interval's reach towards 0 and t.8, in standard errors, equal the
    measured difference. The reach is that of the skewness found, and no less than that of 1.4 / n, which half of normal
    samples of n exceed by chance.
    """
    gap = b.double() - a.double()
    found = difference(a, b)
    sd = 0.0 if len(gap) < 2 or alike(gap, largest(a, b)) else float(gap.std())
    skew = skewness(gap - gap.mean()) * math.sqrt(len(gap)) if sd and len(gap) > 2 else 0.0  # of a single gap
    towards = math.copysign(skew, skew * found.mean)  # negative: the long tail lies on the side of 0

    def reach(n: int) -> float:
        t, chance = t_quantile(n - 1), 1.4 / n if n > 2 else 0.0
        wide = max(skewed(towards / math.sqrt(n) if n > 2 else 0.0, t)[0], *skewed(chance, t))
        return (wide + t_quantile(n - 1, POWER)) * sd / math.sqrt(n)

    needed = fewest(reach, abs(found.mean)) if sd else None
    return Paired(
        len(gap), float(a.double().mean()), float(b.double().mean()), found.mean, found.low, found.high,
        found.detectable, needed,
    )  # fmt: skip


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
