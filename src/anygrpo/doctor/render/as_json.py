"""The stable machine form.

    {"source", "format", "rows", "verdict", "findings": [{"rule", "certainty", "severity", "title", "evidence",
     "prescription", "rows", "steps"}], "not_observable": [...], "map": {our name: column},
     "inferred": [{"name", "column", "why"}], "open": [...], "unknown_columns": [...], "notes": [...],
     "meters": [{"column", "counts", "seen", "versions"}]}

Findings are in rank order: the first of severity "warning" or "serious" is where to begin.
"""

from __future__ import annotations

from typing import Any

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.diagnose import Diagnosis
from anygrpo.doctor.findings import Finding
from anygrpo.doctor.miscounts import known_here
from anygrpo.doctor.words import tell
from anygrpo.doctor.words.tell import book
from anygrpo.spoken import colon, say


def as_json(diagnosis: Diagnosis, lang: str = "en") -> dict[str, Any]:
    """One diagnosis as plain JSON data."""
    run = diagnosis.run
    return {
        "source": run.source,
        "format": run.format,
        "rows": run.rows,
        "verdict": diagnosis.verdict,
        "findings": [finding_json(f, run, lang) for f in diagnosis.findings],
        "not_observable": list(diagnosis.not_observable),
        "map": run.map(),
        "inferred": [{"name": i.name, "column": i.key, "why": i.why} for i in run.inferred.columns],
        "open": list(run.inferred.open),
        "unknown_columns": list(run.unknown),
        "notes": list(run.notes),
        "meters": [
            {"column": k.column, "counts": k.counts.said(lang), "seen": k.seen, "versions": k.versions}
            for k in known_here(run)
        ],
    }


def finding_json(finding: Finding, run: Columns | None, lang: str = "en") -> dict[str, Any]:
    """One finding; the usual causes and what it was not stand in the evidence, as sentences."""
    told, labels = tell(finding, run, lang), book(lang).labels
    cause, unlike = (labels[name] + colon(lang) for name in ("cause", "unlike"))
    return {
        "rule": finding.rule,
        "certainty": finding.certainty,
        "severity": finding.severity,
        "title": told.title,
        "evidence": f"{told.evidence} {cause}{told.cause} {unlike}{told.unlike}{say('.', '。', lang)}",
        "prescription": told.prescription,
        "rows": decisive(finding.rows),
        "steps": [] if run is None else run.steps_of(decisive(finding.rows)),
    }


def decisive(rows: tuple[int, ...], most: int = 100) -> list[int]:
    """At most `most` row numbers: the first and the last half of them."""
    half = most // 2
    return list(rows) if len(rows) <= most else [*rows[:half], *rows[-half:]]
