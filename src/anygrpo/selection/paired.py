"""Is a difference on the same queries one? Paired standard error, interval, McNemar, and what could be seen."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from anygrpo.algorithm.statistics import TOLERANCE
from anygrpo.core.intervals import alike, largest
from anygrpo.core.intervals import difference as gain
from anygrpo.spoken import say

FEW = 30
"""Fewer differing queries than this are judged by the exact test as well."""


@dataclass(frozen=True)
class Paired:
    """Comparison of two systems on the same n queries.

    Attributes:
        difference: mean of a - b. se: its paired standard error. low, high: 95% (`core.intervals.difference`).
        wins, losses: queries where only a, only b is right (a > b, a < b).
        p: exact two-sided McNemar (sign) test.
        detectable: smallest difference that these queries would show with power .8 (2.8 standard errors);
            3 / n where all differ alike, or none does: what n queries leave possible unseen (the rule of three).
    """

    n: int
    difference: float
    se: float
    low: float
    high: float
    wins: int
    losses: int
    p: float
    detectable: float

    @property
    def sentence(self) -> str:
        """In words, with the numbers that decide."""
        numbers = f"{self.difference:+.4f} [{self.low:+.4f}, {self.high:+.4f}], n = {self.n}, p = {self.p:.3g}"
        differ, least = self.wins + self.losses, f"{self.detectable:.3f}"
        if self.low <= 0 <= self.high:
            return say(
                f"indistinguishable on n = {self.n}: {numbers}; a difference below {least} cannot show",
                f"n = {self.n} 时无法区分：{numbers}；小于 {least} 的差异看不出来",
            )
        if differ < FEW and self.p >= 0.05:  # an interval from few differences is too narrow
            return say(
                f"not decided on n = {self.n}: {numbers}; only {differ} queries differ",
                f"n = {self.n} 时无法判定：{numbers}；只有 {differ} 个查询不同",
            )
        return say(f"different: {numbers}", f"有差异：{numbers}")


def paired(a: Tensor, b: Tensor) -> Paired:
    """Compare scores a and b [n] of the same queries."""
    difference = a.double() - b.double()
    rounding = difference.abs() <= TOLERANCE * largest(a, b)
    difference = difference.where(~rounding, 0.0)
    n = len(difference)
    se = float(difference.std(correction=1)) / math.sqrt(n) if n > 1 else math.inf
    found = gain(b, a)
    wins, losses = int((difference > 0).sum()), int((difference < 0).sum())
    detectable = 3 / n if alike(difference, largest(a, b)) else 2.8 * se
    return Paired(
        n, float(difference.mean()), se, found.low, found.high, wins, losses, mcnemar(wins, losses), detectable
    )


def mcnemar(wins: int, losses: int) -> float:
    """Exact two-sided p of `wins` against `losses` discordant pairs under a fair coin."""
    n = wins + losses
    if n == 0:
        return 1.0
    tail = sum(math.comb(n, k) for k in range(min(wins, losses) + 1)) / 2**n
    return min(1.0, 2 * tail)


def unpaired_detectable(accuracy: float, n: int) -> float:
    """Smallest difference of two accuracies on *different* n queries each that shows with power .8."""
    return 2.8 * math.sqrt(2 * accuracy * (1 - accuracy) / n)
