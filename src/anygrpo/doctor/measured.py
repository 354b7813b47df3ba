"""A number as somebody wrote it down: its value, and how far the printing or a float32 may have moved it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from anygrpo.errors import ConfigError

DECIMAL = re.compile(r"^\s*[-+]?(\d*)(?:\.(\d*))?(?:[eE]([-+]?\d+))?\s*$")


@dataclass(frozen=True)
class Measured:
    """value +- half: half a unit of the last printed digit, and never less than half a float32 step."""

    value: float
    half: float

    @property
    def low(self) -> float:
        return self.value - self.half

    @property
    def high(self) -> float:
        return self.value + self.half


def float32_step(x: float) -> float:
    """Distance between neighbouring float32 numbers at x (24 bits of mantissa)."""
    return 2.0 ** (math.floor(math.log2(abs(x))) - 23) if x else 0.0


def measured(text: str | float | int, name: str = "number") -> Measured:
    """From the text of a number, so that .0063 is known to mean .00625 to .00635.

    Raises:
        ConfigError: not a finite number.
    """
    raw = str(text)
    match = DECIMAL.match(raw)
    try:
        value = float(raw)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"{name} = {raw!r} is not a finite number", "give it as it was logged, e.g. 0.0063")
    half = 0.0
    if match and (match[2] or match[3]):
        half = 0.5 * 10.0 ** (int(match[3] or 0) - len(match[2] or ""))
    return Measured(value, max(half, 0.5 * float32_step(value)))


def simplest(low: float, high: float) -> float | None:
    """The number with the fewest significant digits in [low, high] (at most three), or None."""
    if low > high or low <= 0:
        return None
    for digits in (1, 2, 3):
        scale = 10.0 ** (digits - 1 - math.floor(math.log10((low + high) / 2)))
        candidate = round((low + high) / 2 * scale) / scale
        if low <= candidate <= high:
            return candidate
    return None
