"""Two shares of right answers: intervals and a test that hold for few questions and for shares of 0 or 1."""

from __future__ import annotations

import math

Z = 1.959964
"""The normal's 97.5% point."""


def wilson(p: float, n: int) -> tuple[float, float]:
    """95% score interval of a share p of n (Wilson 1927): inside [0, 1], and never of no width."""
    middle = p + Z * Z / (2 * n)
    reach = Z * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    scale = 1 + Z * Z / n
    return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)


def newcombe(a: float, b: float, n: int) -> tuple[float, float]:
    """95% interval of a - b, each a share of n, from both score intervals (Newcombe 1998, method 10)."""
    (low_a, high_a), (low_b, high_b) = wilson(a, n), wilson(b, n)
    low = a - b - math.hypot(a - low_a, high_b - b)
    return low, a - b + math.hypot(high_a - a, b - low_b)


def fisher(a: int, b: int, n: int) -> float:
    """Two-sided exact p of a and b right of n each (Fisher 1935).

    With equal n the count is symmetric about (a + b) / 2, given their sum: twice the tail from the larger. Its terms
    fall from there, each by the ratio of neighbours.
    """
    right, k = a + b, max(a, b)
    if a == b:
        return 1.0
    log = log_choose(n, k) + log_choose(n, right - k) - log_choose(2 * n, right)
    total = ratio = 1.0
    while k < min(n, right) and ratio > 1e-17 * total:
        ratio *= (right - k) * (n - k) / ((k + 1) * (n - right + k + 1))
        total += ratio
        k += 1
    return min(1.0, 2 * math.exp(log) * total)


def log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
