"""Two runs side by side: a setting that changed nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anygrpo.doctor.columns import Run
from anygrpo.doctor.diagnose import Diagnosis
from anygrpo.doctor.findings import Finding
from anygrpo.doctor.rank import rank

COMPARED = ("reward/mean", "loss/total", "loss/policy", "kl/reference", "grad_norm/total", "entropy", "length/mean")


def no_effect(one: Run, two: Run) -> Finding | None:
    """Runs equal to 1e-6 in every common metric although a known setting differs (or the settings are not known)."""
    names = [name for name in COMPARED if one.get(name) and two.get(name)]
    changed = {k for k in set(one.settings) | set(two.settings) if one.settings.get(k) != two.settings.get(k)}
    if one.source == two.source or len(names) < 2 or (one.settings and two.settings and not changed):
        return None
    largest, rows = 0.0, 0
    for name in names:
        a, b = one.series[name], two.series[name]
        if len(a) != len(b) or len(a) < 3:
            return None
        rows = max(rows, len(a))
        largest = max(largest, *(abs(x - y) / max(1.0, abs(x)) for x, y in zip(a.values, b.values)))
    if largest > 1e-6 or all(one.series[name].constant for name in names):
        return None
    facts: dict[str, Any] = {
        "other": one.source,
        "count": rows,
        "largest": largest,
        "names": ", ".join(sorted(changed)) or "?",
    }
    return Finding("no_effect", "certain" if changed else "ask", "warning", (), facts)


def compared(diagnoses: list[Diagnosis]) -> list[Diagnosis]:
    """The diagnoses, each with a `no_effect` finding where it equals an earlier one."""
    out: list[Diagnosis] = []
    for i, d in enumerate(diagnoses):
        found = next((f for other in diagnoses[:i] if (f := no_effect(other.run, d.run))), None)
        if found:
            verdict = "warning" if d.verdict == "no_objection" else d.verdict
            d = replace(d, findings=tuple(rank([*d.findings, found])), verdict=verdict)
        out.append(d)
    return out
