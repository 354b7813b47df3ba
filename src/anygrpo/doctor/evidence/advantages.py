"""Bounds of z-scores, and the largest advantage of a log."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.series import Series

TOLERANCE = 2e-3
"""Share of a bound that a logged advantage may miss it by: logs are rounded to three or four digits."""


def bound(group: int) -> float:
    """Largest possible |z-score| in a group of G with the unbiased std: (G - 1) / sqrt(G)."""
    return (group - 1) / math.sqrt(group)


def group_from_bound(largest: float) -> int | None:
    """The G whose bound a largest advantage sits on, or None. Beyond 64 the bounds lie closer than `TOLERANCE`."""
    for group in range(2, 65):
        if abs(largest - bound(group)) <= TOLERANCE * bound(group):
            return group
    return None


def largest_advantage(run: Columns) -> Series | None:
    """max |advantage| per row, from whatever was logged."""
    if found := run.get("advantage/abs_max"):
        return found
    high, low = run.get("advantage/max"), run.get("advantage/min")
    if not high:
        return None
    floor = low.at() if low else {}
    values = tuple(max(x, -floor.get(r, -x)) for r, x in zip(high.rows, high.values))
    return Series("advantage/abs_max", high.key, high.rows, values)
