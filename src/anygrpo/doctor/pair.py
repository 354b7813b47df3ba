"""Two runs side by side: a setting that changed nothing."""

from __future__ import annotations

from dataclasses import replace

from anygrpo.doctor.diagnose import Diagnosis
from anygrpo.doctor.rank import rank
from anygrpo.doctor.rules.no_effect import equal_runs as no_effect


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
