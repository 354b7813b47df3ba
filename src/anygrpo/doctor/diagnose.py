"""One run in, a diagnosis out. Pure: no files, no printing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anygrpo.doctor.columns import Columns, build
from anygrpo.doctor.configs import from_header
from anygrpo.doctor.evidence.progress import LONG_ENOUGH
from anygrpo.doctor.findings import Finding, verdict
from anygrpo.doctor.log import Log, flatten
from anygrpo.doctor.rank import rank
from anygrpo.doctor.rules import RULES

FROM_ONE_ROW = ("constant_reward", "zero_gradient", "wrong_reference")
"""Suspicions that no longer log would change: they are said before the refusal of trends."""


@dataclass(frozen=True)
class Diagnosis:
    """A run and what can be said of it, most important first.

    Attributes:
        verdict: "serious", "warning", "no_objection", or "cannot_tell".
        not_observable: metrics the log does not have; a rule that needs one says nothing, and that is no acquittal.
    """

    run: Columns
    findings: tuple[Finding, ...]
    verdict: str
    not_observable: tuple[str, ...]

    @property
    def first(self) -> Finding | None:
        """The first finding of weight: where to begin."""
        return next((f for f in self.findings if f.severity != "info"), None)


def diagnose_log(log: Log, mapping: dict[str, str] | None = None, settings: dict[str, Any] | None = None) -> Diagnosis:
    """Judge one log. `mapping`: our name -> column; `settings`: concept -> value, from --config."""
    return judge(columns_of(log, mapping, settings))


def columns_of(log: Log, mapping: dict[str, str] | None = None, settings: dict[str, Any] | None = None) -> Columns:
    """A log's columns, without judging it: the settings printed in its head count, those of `settings` win."""
    return build(log, mapping, {**from_header(log.head), **(settings or {})})


def diagnose(
    rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any] | None = None, format: str = "anygrpo"
) -> Diagnosis:
    """Judge flat metric dicts (anygrpo's names, or any framework's), for live use and tests.

    Args:
        rows: one mapping of numbers a step.
        config: concept -> value (`settings.SETTINGS` has the concepts), for exact prescriptions.
    """
    return diagnose_log(Log("live", format, [flatten(dict(row)) for row in rows]), settings=dict(config or {}))


def judge(run: Columns) -> Diagnosis:
    """Apply every rule that can be applied; a log too short for trends keeps its certainties."""
    reward = run.get("reward/mean")
    short = reward is None or len(reward) < LONG_ENOUGH
    other_training = bool(RULES["not_rl_log"].apply(run))
    findings: list[Finding] = []
    for rule in RULES.values():
        if not rule.observable(run) or (rule.trend and short):
            continue
        if other_training and rule.id not in ("not_rl_log", "crash", "nonfinite"):
            continue
        findings += rule.apply(run)
    findings = rank(drop_contradicted(findings))
    refused = reward is None or any(f.rule in ("too_short", "not_rl_log") for f in findings)
    only_refusals = all(f.severity == "info" or f.rule in ("too_short", "not_rl_log") for f in findings)
    told = verdict(findings, not (refused and only_refusals))
    if run.partial and told == "no_objection":  # of the part that was read: the rest may hold anything
        told = "cannot_tell"
    return Diagnosis(run, tuple(findings), told, tuple(run.not_observable))


def from_one_row(f: Finding) -> bool:
    """So is that nearly every answer was cut off."""
    share = f.facts.get("share")
    return f.rule in FROM_ONE_ROW or (f.rule == "truncation" and isinstance(share, float) and share >= 0.95)


def drop_contradicted(findings: list[Finding]) -> list[Finding]:
    """What the others make needless.

    `no_learning` is for runs with none of the causes shown: a cause that explains it replaces it. A rule may name
    others that say the same less exactly. That the log is too noisy for a
    trend is worth a word only where nothing graver was found.
    """
    heavy = {f.rule for f in findings if f.severity != "info"}
    gone: set[str] = set()
    if any("no_learning" in RULES[r].explains for r in heavy - {"no_learning"}):
        gone.add("no_learning")
    gone |= {replaced for r in heavy for replaced in RULES[r].replaces}
    shown = any(f.severity == "serious" and (f.certainty == "certain" or from_one_row(f)) for f in findings)
    if shown and heavy - {"too_short", "crash"}:  # what needs no trend is said first: its refusal stays as a note
        findings = [replace(f, severity="info") if f.rule == "too_short" else f for f in findings]
    noisy = any(f.rule == "too_short" and f.variant == "mde" for f in findings)
    if noisy and heavy - {"too_short"}:
        gone.add("too_short")
    return [f for f in findings if f.rule not in gone]
