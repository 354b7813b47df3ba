"""From findings to an order: severity after causal demotion, then place in the causal order."""

from __future__ import annotations

from dataclasses import replace

from anygrpo.doctor.findings import SEVERITIES, Finding
from anygrpo.doctor.rules import RULES

CERTAINTY = {"certain": 0, "likely": 1, "ask": 2}


def rank(findings: list[Finding]) -> list[Finding]:
    """Demote what a finding of weight explains to a note, and sort: weight first, then cause before effect.

    A finding is explained only by one of at least "warning" that names its rule, or says
    of this run that it follows; certain facts that merely follow keep their sentence, not their weight.
    """
    heavy = sorted((f for f in findings if f.severity != "info"), key=place)
    demoted: dict[str, str] = {}
    for f in heavy:
        if f.rule in demoted:
            continue
        for other in heavy:
            if other.rule != f.rule and other.rule in (*RULES[f.rule].explains, *f.explains):
                demoted.setdefault(other.rule, f.rule)
    out = [
        replace(f, severity="info", follows=demoted[f.rule]) if f.rule in demoted and f.severity != "info" else f
        for f in findings
    ]
    return sorted(out, key=lambda f: (-min(1, SEVERITIES.index(f.severity)), *place(f)))


def place(f: Finding) -> tuple[int, int, int]:
    return *RULES[f.rule].place, CERTAINTY[f.certainty]
