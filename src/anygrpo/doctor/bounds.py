"""Counts as sentences give them: "4 groups", "fewer than 10 groups", "不超过 10 组", "3 to 5 groups"."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_ABOUT = r"\s*(?:约|大约|大概|about|around|roughly|the)?\s*"
_NOT = r"(?:并?不会?|并?没有?|未|(?:\bno|\bnot|n['’]t)\s+(?:have\s+)?)\s*"
_LESS = r"少于|低于|小于|\b(?:fewer|less) than|\bbelow|\bunder"
_MORE = r"超过|超出|多于|高于|大于|\bmore than|\babove|\bover|\bexceed(?:s|ing)?"
_END = rf"{_ABOUT}$"
BOUNDS = (
    (
        re.compile(
            rf"(?:{_NOT}(?:{_MORE})|(?:{_LESS})或?等于|≤|<=|至多|最多|顶多|\bat (?:the )?most|\bup to){_END}", re.I
        ),
        "at_most",
    ),
    (
        re.compile(rf"(?:{_NOT}(?:{_LESS})|(?:{_MORE})或?等于|≥|>=|至少|最少|起码|\bat (?:the )?least){_END}", re.I),
        "at_least",
    ),
    (re.compile(rf"(?:不到|不足|不满|未到|没到|\bnot even|<|{_LESS}){_END}", re.I), "below"),
    (re.compile(rf"(?:>|{_MORE}){_END}", re.I), "above"),
)
"""The denied words first: "不超过" is no "超过"."""
RANGE = re.compile(
    r"(?:\bbetween\s+(\d+)\s+and|(?<![\d.从])(?<!从\s)(?<!from\s)(\d+)\s*(?:[-–—~～至到]|to\b))\s*$", re.I
)


@dataclass(frozen=True)
class Stated:
    """Whole numbers from `low` to `high`, and where the words of it begin in the sentence."""

    low: float
    high: float
    start: int

    def allows(self, value: float, slack: float) -> bool:
        return self.low - slack <= value <= self.high + slack


def stated(said: str, at: int, number: float) -> Stated:
    """What a sentence says with the number that stands at `at`: that number, unless words before it bound it."""
    before = said[:at]
    for pattern, how in BOUNDS:
        if found := pattern.search(before):
            low = {"at_least": number, "above": number + 1}.get(how, -math.inf)
            high = {"at_most": number, "below": number - 1}.get(how, math.inf)
            return Stated(low, high, found.start())
    if (found := RANGE.search(before)) and float(found[1] or found[2]) < number:
        return Stated(float(found[1] or found[2]), number, found.start())
    return Stated(number, number, at)
