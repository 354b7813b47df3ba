"""Robust statistics of one logged metric, without numpy: levels, noise, trends, and what the log could have shown.

The noise of a series is what is left when each quarter's own straight line is taken out, so that a run that climbs is
not called noisy for climbing. Rows that resemble their neighbours (smoothed, repeated, slowly wandering) count for
less: `inertia` = (1 + r) / (1 - r), with r the correlation of neighbours, is how many of them make one independent row.
The smallest change between first and last quarter that a log of n rows can show is
MDE = 2.8 sd sqrt(2 inertia / (n/4)): two-sided 5%, power 80%.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    if not ordered:
        return math.nan
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def std(values: Sequence[float]) -> float:
    """Sample standard deviation (n - 1); 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.sqrt(math.fsum((x - centre) ** 2 for x in values) / (len(values) - 1))


def slope(values: Sequence[float]) -> float:
    """Least-squares slope per row."""
    n = len(values)
    if n < 2:
        return 0.0
    mid, centre = (n - 1) / 2, mean(values)
    return math.fsum((i - mid) * (x - centre) for i, x in enumerate(values)) / (n * (n * n - 1) / 12)


def residuals(values: Sequence[float]) -> list[float]:
    n, k, centre = len(values), slope(values), mean(values)
    return [x - centre - k * (i - (n - 1) / 2) for i, x in enumerate(values)]


def normal_tail(z: float) -> float:
    """P(Z > z)."""
    return 0.5 * math.erfc(z / math.sqrt(2))


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 0, ties averaged."""
    order = sorted(range(len(values)), key=values.__getitem__)
    out = [0.0] * len(values)
    i = 0
    while i < len(order):
        j = i
        while j + 1 < len(order) and values[order[j + 1]] == values[order[i]]:
            j += 1
        for k in range(i, j + 1):
            out[order[k]] = (i + j) / 2
        i = j + 1
    return out


def correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Pearson's r; 0 where either does not vary."""
    ma, mb = mean(a), mean(b)
    saa = math.fsum((x - ma) ** 2 for x in a)
    sbb = math.fsum((y - mb) ** 2 for y in b)
    if saa <= 0 or sbb <= 0:
        return 0.0
    return math.fsum((x - ma) * (y - mb) for x, y in zip(a, b)) / math.sqrt(saa * sbb)


def trend_p(values: Sequence[float], inertia: float = 1.0) -> float:
    """Two-sided p of a monotone trend: Spearman against time, normal approximation z = r sqrt((n - 1) / inertia)."""
    n = len(values)
    if n < 5:
        return 1.0
    r = correlation(list(range(n)), ranks(values))
    return 2 * normal_tail(abs(r) * math.sqrt((n - 1) / inertia))


def straightened(values: Sequence[float], count: int = 4) -> list[list[float]]:
    """What each quarter's (or half's) own straight line leaves."""
    n = len(values)
    cuts = [round(n * q / count) for q in range(count + 1)]
    return [residuals(values[a:b]) for a, b in pairwise(cuts)]


def neighbours(parts: Sequence[Sequence[float]]) -> float:
    """Correlation of neighbouring rows, from residuals of straight lines; Kendall's bias of short stretches undone.

    Within a stretch of m rows with its line taken out, E[r^] = r - (2 + 4 r) / m. An r that chance alone can give
    (two standard errors) counts as 0.
    """
    total = math.fsum(x * x for part in parts for x in part)
    n = sum(map(len, parts))
    if total <= 0 or n < 16:
        return 0.0
    found = math.fsum(a * b for part in parts for a, b in pairwise(part)) / total
    m = n / len(parts)
    if m <= 6 or found + 2 / m <= 1.6 / math.sqrt(n):
        return 0.0
    return min(0.97, (found + 2 / m) / (1 - 4 / m))


@dataclass(frozen=True)
class Series:
    """One metric over a run.

    Attributes:
        name: canonical name.
        key: the name in the log.
        rows: 1-based row numbers of the log, one per value.
        values: finite values.
        bad: row numbers where the value was NaN or infinite.
    """

    name: str
    key: str
    rows: tuple[int, ...]
    values: tuple[float, ...]
    bad: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    @property
    def quarter_size(self) -> int:
        return max(1, len(self.values) // 4)

    @cached_property
    def first(self) -> float:
        """Mean of the first quarter."""
        return mean(self.values[: self.quarter_size])

    @cached_property
    def last(self) -> float:
        """Mean of the last quarter."""
        return mean(self.values[-self.quarter_size :])

    @property
    def gain(self) -> float:
        return self.last - self.first

    @cached_property
    def mean(self) -> float:
        return mean(self.values)

    @cached_property
    def median(self) -> float:
        return median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    @cached_property
    def noise(self) -> float:
        """Standard deviation within quarters, their straight lines taken out (2 degrees of freedom each)."""
        n = len(self.values)
        if n < 12:
            return std(residuals(self.values)) * math.sqrt((n - 1) / max(1, n - 2)) if n > 2 else math.inf
        parts = straightened(self.values)
        total = math.fsum(x * x for part in parts for x in part)
        freedom = max(n / 4, n - 8 * self.inertia)  # a line takes more from rows that resemble each other
        return math.sqrt(total / freedom)

    @cached_property
    def inertia(self) -> float:
        """Rows that make one independent row: (1 + r) / (1 - r); 1 where neighbours do not resemble each other."""
        n = len(self.values)
        r = neighbours(straightened(self.values, 4 if n >= 160 else 2)) if n >= 16 else 0.0
        return max(1.0, min((1 + r) / (1 - r), n / 8))  # so short a log cannot tell a curve from a wandering

    @property
    def effective(self) -> float:
        """The number of independent rows that these are worth."""
        return len(self.values) / self.inertia

    @cached_property
    def mde(self) -> float:
        """Smallest difference of first and last quarter that this log could have shown."""
        n = len(self.values)
        return math.inf if n < 4 else 2.8 * self.noise * math.sqrt(2 * self.inertia / (n / 4))

    @property
    def constant(self) -> bool:
        """The same value in every row, to float32 rounding."""
        return len(self.values) > 0 and self.high - self.low <= 1e-6 * max(1e-6, abs(self.high), abs(self.low))

    @cached_property
    def p(self) -> float:
        return trend_p(self.values, self.inertia)

    @property
    def trending(self) -> bool:
        """A monotone trend (p < .01), or a change far beyond what chance can do (1.5 MDE: 4 standard errors)."""
        return self.p < 0.01 or abs(self.gain) > 1.5 * self.mde

    @cached_property
    def edge(self) -> int:
        """Rows that count as "the start" or "the end": a tenth of the run, 3 to 20."""
        return max(1, min(len(self.values), max(3, min(20, len(self.values) // 10))))

    @cached_property
    def start(self) -> float:
        return median(self.values[: self.edge])

    @cached_property
    def end(self) -> float:
        return median(self.values[-self.edge :])

    def smooth(self, width: int | None = None) -> list[float]:
        """Trailing means over `width` values (default: a twentieth of the run, at least 5)."""
        width = width or max(5, len(self.values) // 20)
        out: list[float] = []
        total = 0.0
        for i, x in enumerate(self.values):
            total += x
            if i >= width:
                total -= self.values[i - width]
            out.append(total / min(i + 1, width))
        return out

    def tail(self, share: float) -> tuple[float, ...]:
        return self.values[-max(1, math.ceil(len(self.values) * share)) :]

    def at(self) -> dict[int, float]:
        """Row number -> value."""
        return dict(zip(self.rows, self.values))


def paired(a: Series, b: Series) -> list[tuple[int, float, float]]:
    """(row, a, b) of the rows where both were logged."""
    other = b.at()
    return [(row, x, other[row]) for row, x in zip(a.rows, a.values) if row in other]
