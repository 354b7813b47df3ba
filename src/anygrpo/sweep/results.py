"""A sweep's table: trials with intervals, each paired with the best on the same held-out prompts."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

_95 = 1.96


@dataclass(frozen=True)
class Result:
    """One trial: its settings, best validation value with its standard error on n held-out prompts, and its fate.

    Attributes:
        step: when it was best (-1: before the first step).
        gap: its value minus the best trial's. gap_se: the standard error of that difference.
        paired: gap_se is that of differences on the same prompts; False: the two were taken as independent.
    """

    number: int
    settings: dict[str, Any]
    state: str
    value: float | None = None
    se: float = 0.0
    n: int = 0
    step: int | None = None
    gap: float | None = None
    gap_se: float = 0.0
    paired: bool = False

    @property
    def indistinguishable(self) -> bool:
        """The 95% interval of the difference to the best trial holds 0."""
        return self.gap is not None and abs(self.gap) <= _95 * self.gap_se


def trial_folder(folder: Path, number: int) -> Path:
    return folder / f"trial-{number:04d}"


def results(study: Any, folder: Path) -> list[Result]:
    """All trials, best first; those without a value last."""
    rows = []
    for t in study.trials:
        attrs = t.user_attrs
        value = t.value if t.state.name == "COMPLETE" else None
        known = (attrs.get("se", 0.0), attrs.get("n", 0), attrs.get("step"))
        rows.append(Result(t.number, t.params, t.state.name.lower(), value, *known))
    sign = 1 if study.direction.name == "MAXIMIZE" else -1
    rows.sort(key=lambda r: (r.value is None, 0.0 if r.value is None else -sign * r.value))
    if not rows or rows[0].value is None:
        return rows
    best = scores(folder, rows[0])
    return [rows[0], *(_against(row, rows[0], scores(folder, row), best) for row in rows[1:])]


def _against(row: Result, best: Result, own: dict[int, float], other: dict[int, float]) -> Result:
    """The row with its difference to the best trial, paired where both kept what each prompt scored."""
    if row.value is None or best.value is None:
        return row
    common = sorted(own.keys() & other.keys())
    if len(common) < 2 or len(common) < max(len(own), len(other)):
        return replace(row, gap=row.value - best.value, gap_se=math.hypot(row.se, best.se))
    gaps = [own[i] - other[i] for i in common]
    mean = sum(gaps) / len(gaps)
    variance = sum((x - mean) ** 2 for x in gaps) / (len(gaps) - 1)
    return replace(row, gap=mean, gap_se=math.sqrt(variance / len(gaps)), paired=True)


def scores(folder: Path, row: Result) -> dict[int, float]:
    """What each valid held-out prompt scored where the trial was best, by number: the reward or component whose mean
    is the trial's value; empty where there is none (a metric that is no mean over prompts)."""
    if row.step is None or row.value is None:
        return {}
    file = trial_folder(folder, row.number) / "evaluations" / f"step_{row.step + 1:08d}.jsonl"
    if not file.is_file():
        return {}
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line["valid"]]
    for name in (*(lines[0]["components"] if lines else ()), None):
        values = [line["reward"] if name is None else line["components"][name] for line in lines]
        if math.isclose(sum(values) / len(values), row.value, rel_tol=1e-5, abs_tol=1e-6):
            return {line["prompt"]: float(value) for line, value in zip(lines, values)}
    return {}


def verdict(rows: list[Result]) -> str:
    """Which settings can't be told from the best, in one sentence with the n it rests on."""
    done = [r for r in rows if r.value is not None]
    if not done:
        return "No trial finished."
    best, others = done[0], done[1:]
    if not others or not (best.se or any(r.gap_se for r in others)):
        return "There is one value only, or no standard error: nothing can be compared."
    how = (
        "paired"
        if all(r.paired for r in others)
        else "unpaired"
        if not any(r.paired for r in others)
        else "partly paired"
    )
    width = _95 * median(r.gap_se for r in others)
    same = [r for r in others if r.indistinguishable]
    if not same:
        sure = f"(95% intervals, {how}; half-width {width:.3f})"
        return f"Trial {best.number} is better than all others on n = {best.n} {sure}."
    names = ", ".join(str(r.number) for r in (best, *same))
    return (
        f"These settings are indistinguishable on n = {best.n}: trials {names} ({len(same) + 1} of {len(done)}; 95% "
        f"intervals of differences to trial {best.number}, {how}). Differences below {width:.3f} cannot show."
    )


def table(rows: list[Result]) -> str:
    """The trials as text: value with its 95% half-width, difference to the best with its own, settings."""
    lines = [f"{'':4s}  {'value':20s} {'minus the best':22s} settings"]
    for row in rows:
        settings = "  ".join(f"{name.split('.')[-1]}={_text(value)}" for name, value in row.settings.items())
        value = row.state if row.value is None else f"{row.value:.4f} +- {_95 * row.se:.4f}"
        mark = "" if row.paired else " (unpaired)"
        gap = "" if row.gap is None else f"{row.gap:+.4f} +- {_95 * row.gap_se:.4f}{mark}"
        lines.append(f"{row.number:4d}  {value:20s} {gap:22s} {settings}")
    return "\n".join(lines)


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
