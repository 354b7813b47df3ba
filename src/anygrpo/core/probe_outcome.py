"""What a probe says: a status, a sentence in two languages, the numbers behind it, and what to change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from anygrpo.spoken import NOTHING, Text

Status = Literal["ok", "warning", "serious", "not applicable"]
Certainty = Literal["certain", "likely", "ask"]


@dataclass(frozen=True)
class Outcome:
    """One probe's result.

    Attributes:
        probe: its name, the word in JSON and in docs/check.md.
        status: "serious" makes `anygrpo check` exit with 5.
        certainty: "certain" is algebra or a probability bound; "likely" rests on this sample; "ask" cannot be decided.
        sentence, cure: templates; `{name}` and `{name:.3g}` are filled in from the numbers.
        numbers: what was measured.
        rows: a table, where the probe has one (rates, terms, classes), each row a flat dict.
    """

    probe: str
    status: Status
    sentence: Text
    cure: Text = NOTHING
    numbers: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    certainty: Certainty = "likely"

    def say(self, language: str) -> str:
        """The sentence with its numbers, in "en" or "zh"."""
        return self.sentence.said(language).format(**self.numbers)

    def prescribe(self, language: str) -> str:
        """The cure, or an empty text."""
        return self.cure.said(language).format(**self.numbers)

    def as_dict(self, language: str = "en") -> dict[str, Any]:
        """For --json; the field names are those of the doctor's findings where the meaning is the same."""
        return {
            "rule": self.probe,
            "certainty": self.certainty,
            "severity": self.status,
            "title": self.say(language),
            "prescription": self.prescribe(language),
            "evidence": self.numbers,
            "table": self.rows,
        }


def not_applicable(probe: str, why: Text) -> Outcome:
    """A probe that has nothing to look at here; it says why, and is never counted as healthy."""
    return Outcome(probe, "not applicable", why)
