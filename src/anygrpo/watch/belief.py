"""Is a trouble believed? It must last, and a second witness must see it. One odd row moves no lever.

A log-ratio in a tier is believed when it stands in four of the last five rows (three in a row above 20, two above 60
or not a number), is far above the run's own usual level, and another metric left its own band in these rows: the clip
fraction, the KL to the behaviour policy, the gradient norm or the reward. Engines that sample with other kernels than
the trainer's have large log-ratios on rare tokens in every row: that is their level, and no explosion.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

WINDOW, OF_WINDOW, IN_A_ROW, OF_EXTREME = 5, 4, 3, 2
EXTREME = 60.0
"""A log-ratio that no outlier of a sound run reaches."""
MEMORY = 60
"""Rows of the run's own usual level."""
ABOVE = 1.5
"""Times its own usual level that a log-ratio must reach."""
WITNESSES: dict[str, tuple[float, float]] = {
    "clip/fraction": (2.0, 0.3), "kl/behaviour": (5.0, 0.05), "grad_norm/total": (5.0, 0.0), "grad_norm": (5.0, 0.0),
    "clip_ratio/region_mean": (2.0, 0.3), "kl/reference": (5.0, 0.5), "kl": (5.0, 0.5),
}  # fmt: skip
"""Metric -> (times its own median, least level) beyond which it bears witness."""
OUTRIGHT: dict[str, float] = {"clip/fraction": 0.6, "kl/behaviour": 1.0, "clip_ratio/region_mean": 0.6}
"""Levels that need no history."""


def _numbers() -> dict[str, deque[float]]:
    return {}


@dataclass
class Belief:
    """Remembers what is usual, row by row."""

    usual: dict[str, deque[float]] = field(default_factory=_numbers)
    recent: deque[tuple[bool, bool]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """(in trouble, with a witness) of the last rows."""

    def state(self) -> dict[str, Any]:
        """Plain data, for `load`."""
        return {"usual": {name: list(x) for name, x in self.usual.items()}, "recent": [list(x) for x in self.recent]}

    def load(self, state: Mapping[str, Any]) -> None:
        self.usual = {str(name): deque(map(float, x), maxlen=MEMORY) for name, x in state["usual"].items()}
        self.recent = deque(((bool(trouble), bool(seen)) for trouble, seen in state["recent"]), maxlen=WINDOW)

    def calm(self, row: Mapping[str, Any], value: float) -> None:
        """A row without trouble: part of what is usual."""
        self.recent.append((False, False))
        self.remember(row, value)

    def remember(self, row: Mapping[str, Any], value: float) -> None:
        for name, x in ({k: row[k] for k in (*WITNESSES, "reward/mean", "reward") if k in row} | {"": value}).items():
            if math.isfinite(float(x)):
                self.usual.setdefault(name, deque(maxlen=MEMORY)).append(float(x))

    def believes(self, row: Mapping[str, Any], value: float, level: int) -> bool:
        """Whether a log-ratio of `value` in the tier `level` is acted on."""
        before = self.usual.get("", deque())
        own = median(before) if len(before) >= 5 else 0.0
        above = not math.isfinite(value) or value > ABOVE * own
        seen = self.witnessed(row)
        self.recent.append((above, seen))
        if not above or (len(before) < 2 * WINDOW and not seen):  # the meter's own level
            self.remember(row, value)
            return False
        rows = list(self.recent)
        troubled = sum(trouble for trouble, _ in rows)
        lasting = troubled >= OF_WINDOW or (level >= 3 and [t for t, _ in rows[-IN_A_ROW:]] == [True] * IN_A_ROW)
        lasting = lasting or (troubled >= OF_EXTREME and not value <= EXTREME)
        return lasting and any(trouble and seen for trouble, seen in rows)

    def witnessed(self, row: Mapping[str, Any]) -> bool:
        """Whether another metric left its own band in this row."""
        for name, (times, least) in WITNESSES.items():
            x = row.get(name)
            if x is None:
                continue
            if not math.isfinite(float(x)) or float(x) > OUTRIGHT.get(name, math.inf):
                return True
            before = self.usual.get(name, deque())
            if len(before) >= 5 and float(x) > max(least, times * median(before)):
                return True
        return self.reward_fell(row)

    def reward_fell(self, row: Mapping[str, Any]) -> bool:
        x = row.get("reward/mean", row.get("reward"))
        before = self.usual.get("reward/mean") or self.usual.get("reward") or deque()
        if x is None or len(before) < 10:
            return False
        middle = median(before)
        return float(x) < middle - 5 * 1.4826 * median(abs(b - middle) for b in before)
