"""What a rule says, and what the whole run amounts to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Certainty = Literal["certain", "likely", "ask"]
Severity = Literal["info", "warning", "serious"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "serious")

Fact = float | int | str


@dataclass(frozen=True)
class Change:
    """A setting to change: a concept of `settings.SETTINGS`, and the value to put or how to move it.

    `factor` scales the present value where it is known; `value` is put as it is.
    """

    concept: str
    value: Fact | None = None
    factor: float | None = None


@dataclass(frozen=True)
class Finding:
    """One statement about a run, free of words: `words.tell` turns it into sentences.

    Attributes:
        rule: id of doctor.md.
        certainty: "certain" (algebra or a bound), "likely" (statistics on this run), "ask" (a probe must decide).
        rows: 1-based rows of the log that decide it.
        facts: the numbers in its sentences.
        variant: which of a rule's sentences applies.
        changes: settings to change.
        follows: rule that explains this one; it has been demoted to a note for that.
        metrics: canonical names of the curves that show it.
        explains: rules that follow from it in this run, besides those that follow from its rule in any run.
    """

    rule: str
    certainty: Certainty
    severity: Severity
    rows: tuple[int, ...] = ()
    facts: dict[str, Fact] = field(default_factory=dict[str, Fact])
    variant: str = ""
    changes: tuple[Change, ...] = ()
    follows: str = ""
    metrics: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()


def at_least(severity: Severity, floor: Severity) -> bool:
    return SEVERITIES.index(severity) >= SEVERITIES.index(floor)


def verdict(findings: Sequence[Finding], can_tell: bool = True) -> str:
    """ "serious", "warning", "cannot_tell" (the log is too short or is no RL log), or "no_objection"."""
    if not can_tell:
        return "cannot_tell"
    worst = max((SEVERITIES.index(f.severity) for f in findings), default=0)
    return ("no_objection", "warning", "serious")[worst]
