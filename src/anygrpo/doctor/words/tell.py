"""From a finding's facts to sentences in one language."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.findings import Fact, Finding
from anygrpo.doctor.prescriptions import advice
from anygrpo.doctor.words.shared import ADVICE, AROUND, AUTOPSY, CANNOT, LABELS, SEEN_AS, VERDICTS
from anygrpo.spoken import say, table

Entry = dict[str, str]


@dataclass(frozen=True)
class Book:
    """All sentences of one language: the shared ones, and each rule's from its own file.

    An entry of `rules` has title, evidence, cause, prescription, principle, unlike; "title:VARIANT",
    "evidence:VARIANT" and "prescription:VARIANT" replace the plain ones for a variant. Braces are the finding's facts.
    """

    around: Entry
    verdicts: Entry
    advice: Entry
    labels: Entry
    autopsy: Entry
    cannot: Entry
    rules: dict[str, Entry]


def unseen(names: Sequence[str], lang: str) -> str:
    """What a log does not hold, as a list in words."""
    known = table(SEEN_AS, lang)
    return say(", ", "、", lang).join(known.get(name, name) for name in names)


@cache
def book(lang: str) -> Book:
    from anygrpo.doctor.rules import RULES

    parts: dict[str, Any] = {
        "around": AROUND,
        "verdicts": VERDICTS,
        "advice": ADVICE,
        "labels": LABELS,
        "autopsy": AUTOPSY,
        "cannot": CANNOT,
    }
    rules = {rule.id: table(rule.words, lang) for rule in RULES.values()}
    return Book(**{name: table(part, lang) for name, part in parts.items()}, rules=rules)


@dataclass(frozen=True)
class Told:
    """One finding in words.

    Attributes:
        title: what is wrong, in a few words.
        evidence: the numbers that show it, and the rows.
        cause: the usual reasons.
        prescription: what to set or to run, with this framework's own names where they are known.
        unlike: what it was not, and why.
        principle: the algebra, bound or practice behind it.
    """

    title: str
    evidence: str
    cause: str
    prescription: str
    unlike: str
    principle: str


def tell(finding: Finding, run: Columns | None, lang: str = "en") -> Told:
    """The sentences of one finding."""
    words = book(lang)
    entry = words.rules[finding.rule]
    facts = {name: Shown(x) for name, x in finding.facts.items()}
    if "excluded" in facts:
        facts["excluded"] = Shown(names_of(str(finding.facts["excluded"]), lang))
    evidence = entry["evidence" if not finding.variant else f"evidence:{finding.variant}"].format(**facts)
    gap = say(" ", "", lang)
    if finding.rows:
        steps = run.steps_of(finding.rows) if run else []
        counted = [int(x) for x in steps if float(x).is_integer()]
        shown = words.around["steps"] if steps and len(counted) == len(steps) else words.around["rows"]
        evidence += gap + shown.format(rows=row_text(counted if shown == words.around["steps"] else finding.rows))
    if finding.follows:
        evidence += gap + words.around["follows"].format(rule=words.rules[finding.follows]["title"])
    settings = advice(finding, run, words.advice) if run else []
    cure = entry.get(f"prescription:{finding.variant}", entry["prescription"]).format(**facts)
    return Told(
        title=entry.get(f"title:{finding.variant}", entry["title"]),
        evidence=evidence,
        cause=entry.get(f"cause:{finding.variant}", entry["cause"]),
        prescription=gap.join([cure, *settings]).strip(),
        unlike=entry["unlike"],
        principle=entry["principle"],
    )


class Shown:
    """A fact inside a sentence: three digits, or "{fact:%}" as a percentage."""

    def __init__(self, value: Fact) -> None:
        self.value = value

    def __format__(self, spec: str) -> str:
        if spec == "%" and not isinstance(self.value, str):
            return f"{100 * self.value:.3g}%"
        return number_text(self.value)


def names_of(rules: str, lang: str) -> str:
    titles = book(lang).rules
    return "; ".join(titles[r]["title"].lower() for r in rules.split(", ") if r in titles) or "-"


def verdict_text(verdict: str, lang: str = "en") -> str:
    return book(lang).verdicts[verdict]


def number_text(x: Fact) -> str:
    """Three significant digits; whole numbers, and those of a thousand or more, as whole numbers."""
    if isinstance(x, str):
        return x
    if isinstance(x, int):
        return str(x)
    if not math.isfinite(x):
        return str(x)
    if abs(x) < 1e6 and (x.is_integer() or abs(x) >= 1000):
        return str(round(x))
    return f"{x:.3g}"


def row_text(rows: Sequence[int]) -> str:
    """ "3-7, 12": runs of consecutive rows joined, at most four of them."""
    spans: list[list[int]] = []
    for r in sorted(set(rows)):
        if spans and r == spans[-1][1] + 1:
            spans[-1][1] = r
        else:
            spans.append([r, r])
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in spans[:4]]
    return ", ".join(shown) + (", ..." if len(spans) > 4 else "")
