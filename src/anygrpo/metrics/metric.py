"""The description of one metric."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One logged number.

    Attributes:
        name: `area/what`; a family ends with "/".
        unit: "1" for pure numbers, "nats", "s", "tokens", "GB", "dB", ...
        normal: the normal range in words that name any dependence on dimension or settings.
        normal_zh: the same in Chinese.
        meaning, meaning_zh: one or two sentences.
        formula: how it is computed, in plain text.
        act, act_zh: what to do outside the normal range.
        low, high: the range as numbers where it is one.
    """

    name: str
    unit: str
    meaning: str
    meaning_zh: str
    formula: str = ""
    normal: str = ""
    normal_zh: str = ""
    act: str = ""
    act_zh: str = ""
    low: float | None = None
    high: float | None = None
