"""The description of one metric."""

from __future__ import annotations

from dataclasses import dataclass

from anygrpo.spoken import NOTHING, Text


@dataclass(frozen=True)
class Metric:
    """One logged number.

    Attributes:
        name: `area/what`; a family ends with "/".
        unit: "1" for pure numbers, "nats", "s", "tokens", "GB", "dB", ...
        normal: the normal range in words that name any dependence on dimension or settings.
        meaning: one or two sentences.
        formula: how it is computed, in plain text.
        act: what to do outside the normal range.
        low, high: the range as numbers where it is one.
    """

    name: str
    unit: str
    meaning: Text
    formula: str = ""
    normal: Text = NOTHING
    act: Text = NOTHING
    low: float | None = None
    high: float | None = None
