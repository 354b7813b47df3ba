"""Student's t without scipy: the doctor works where neither it nor numpy is installed."""

from __future__ import annotations

import math
from functools import lru_cache


def t_tail(t: float, freedom: float) -> float:
    """P(T > t) for t >= 0, by the incomplete beta function I_x(f/2, 1/2) with x = f / (f + t^2)."""
    if not math.isfinite(freedom):
        return 0.5 * math.erfc(t / math.sqrt(2))
    return 0.5 * beta(freedom / 2, 0.5, freedom / (freedom + t * t))


@lru_cache(maxsize=4096)
def t_quantile(freedom: float, level: float = 0.975) -> float:
    """The t with P(T <= t) = level, for a level of at least .5; by bisection, to 1e-9."""
    low, high = 0.0, 1.0
    while t_tail(high, freedom) > 1 - level:
        high *= 2
    while high - low > 1e-9 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, freedom) > 1 - level else (low, middle)
    return high


def beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by Lentz's continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    tiny = 1e-300
    d = 1 / (1 - (a + b) * x / (a + 1) or tiny)
    c, out = 1.0, d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        last = out
        for step in (even, odd):
            d = 1 / (1 + step * d or tiny)
            c = 1 + step / c or tiny
            out *= c * d
        if abs(out - last) < 1e-14 * abs(out):
            break
    return front * out
