"""A sweep's table: trials with intervals that hold all at once, each paired with the best on the same held-out prompts,
and what the best is worth beyond the luck of having been chosen."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from anygrpo.core.intervals import alike, difference, largest
from anygrpo.sweep.honest import Honest, chosen_anew, factor
from anygrpo.train.folder import read_rows
from anygrpo.train.run import MOST_FAULTS

_95 = 1.96


@dataclass(frozen=True)
class Result:
    """One trial: its settings, best validation value with its standard error on n held-out prompts, and its fate.

    Attributes:
        step: when it was best (-1: before the first step).
        gap: its value minus the best trial's. gap_se: the standard error of that difference.
        paired: gap_se is that of differences on the same prompts; False: the two were taken as independent.
        factor: standard errors on each side of `gap` such that all pairs of the sweep's trials hold at once (95%).
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
    factor: float = _95

    @property
    def indistinguishable(self) -> bool:
        """The 95% interval of the difference to the best trial, wide enough for all pairs, holds 0."""
        return self.gap is not None and abs(self.gap) <= self.factor * self.gap_se


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
    found = [scores(folder, row) for row in rows]
    rows = [rows[0], *(_against(row, rows[0], own, found[0]) for row, own in zip(rows[1:], found[1:]))]
    done = [own for row, own in zip(rows, found) if row.value is not None]
    common = _common(done)
    known = [torch.tensor([own[i] for i in common]) for own in done] if len(common) > 1 else None
    wide = factor(known, len(done), fewest=_fewest(rows, done))
    return [replace(row, factor=wide) for row in rows]


def _fewest(rows: list[Result], done: list[dict[str, float]]) -> int | None:
    """Prompts behind the difference to the best trial that has the fewest; None where nothing says how many."""
    shared = [len(_common([own, done[0]])) for own in done[1:]]
    return min((n for n in (*shared, *(row.n for row in rows if row.value is not None)) if n > 1), default=None)


def winner(study: Any, folder: Path, rows: list[Result]) -> Honest | None:
    """The best trial's value with the luck of the choice taken out, among all evaluations of all trials; None where the
    metric is no mean over prompts, prompts differ, or more than 1% of them went unscored somewhere."""
    best = next((row for row in rows if row.value is not None), None)
    column = None if best is None else _column(_lines(folder, best), best.value)
    if column is None:
        return None
    files = sorted(folder.glob("trial-*/evaluations/step_*.jsonl"))
    looks = [{_asked(line): _score(line, column) for line in _read(file)} for file in files]
    common = _common(looks)
    if len(common) < 2:
        return None
    sign = 1 if study.direction.name == "MAXIMIZE" else -1
    return chosen_anew(torch.tensor([[look[i] for i in common] for look in looks], dtype=torch.float64), sign)


def _common(looks: list[dict[str, float]]) -> list[str]:
    """The prompts that all have, in one order; none where they were asked others, or more than 1% failed somewhere."""
    common = set.intersection(*(set(look) for look in looks))
    every = set.union(*(set(look) for look in looks))
    return sorted(common) if len(common) >= (1 - MOST_FAULTS) * len(every) else []


def _against(row: Result, best: Result, own: dict[str, float], other: dict[str, float]) -> Result:
    """The row with its difference to the best trial, paired where both kept what each prompt scored."""
    if row.value is None or best.value is None:
        return row
    common = _common([own, other])
    if len(common) < 2:
        return replace(row, gap=row.value - best.value, gap_se=math.hypot(row.se, best.se))
    mine, theirs = (torch.tensor([x[i] for i in common], dtype=torch.float64) for x in (own, other))
    gaps = mine - theirs
    se = float(gaps.std()) / math.sqrt(len(gaps))
    if alike(gaps, largest(mine, theirs)):  # what so many could have missed
        found = difference(theirs, mine)
        se = max(found.high - found.mean, found.mean - found.low) / _95
    return replace(row, gap=float(gaps.mean()), gap_se=se, paired=True)


def scores(folder: Path, row: Result) -> dict[str, float]:
    """What each held-out prompt scored where the trial was best, by number and text: the reward or component whose mean
    is the trial's value; empty where there is none (a metric that is no mean over prompts)."""
    lines = _lines(folder, row)
    column = _column(lines, row.value)
    return {} if column is None else {_asked(line): _score(line, column) for line in lines}


def _asked(line: dict[str, Any]) -> str:
    """Which prompt it was: trials whose settings change the data ask others under the same numbers."""
    return f"{line['prompt']:08d} {json.dumps(line.get('text'), sort_keys=True)}"


def _lines(folder: Path, row: Result) -> list[dict[str, Any]]:
    if row.step is None or row.value is None:
        return []
    file = trial_folder(folder, row.number) / "evaluations" / f"step_{row.step + 1:08d}.jsonl"
    return _read(file) if file.is_file() else []


def _read(file: Path) -> list[dict[str, Any]]:
    """An evaluation's lines, without what failed through no fault of the answer, or was cut off in writing."""
    return [line for line in read_rows(file)[0] if not line.get("fault")]


def _score(line: dict[str, Any], column: str) -> float:
    """Of an answer that could not be scored the reward is the lowest one, and a component 0."""
    if column == "reward":
        return float(line["reward"])
    value = line["components"].get(column)
    return float(value) if value is not None and line["valid"] else 0.0


def _column(lines: list[dict[str, Any]], value: float | None) -> str | None:
    """The score whose mean is the value."""
    if not lines or value is None:
        return None
    for name in (*lines[0]["components"], "reward"):
        mean = sum(_score(line, name) for line in lines) / len(lines)
        if math.isclose(mean, value, rel_tol=1e-5, abs_tol=1e-6):
            return name
    return None


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
    width = best.factor * median(r.gap_se for r in others)
    same = [r for r in others if r.indistinguishable]
    if not same:
        sure = f"(95% intervals, {how}, of all pairs at once; half-width {width:.3f})"
        return f"Trial {best.number} is better than all others on n = {best.n} {sure}."
    names = ", ".join(str(r.number) for r in (best, *same))
    return (
        f"These settings are indistinguishable on n = {best.n}: trials {names} ({len(same) + 1} of {len(done)}; 95% "
        f"intervals of differences to trial {best.number}, {how}, of all pairs at once). Differences below {width:.3f} "
        "cannot show."
    )


def worth(found: Honest | None) -> str:
    """What the winner is worth, in a sentence."""
    if found is None:
        return (
            "What the winner is worth beyond the luck of being chosen is not known: its metric is no mean over "
            "prompts, or the trials were asked other prompts, or more than 1% of them went unscored somewhere."
        )
    return (
        f"The winner shows {found.apparent:.4f}, the best of {found.looks} evaluations. Chosen on nine tenths of the "
        f"{found.prompts} prompts and judged on the rest it is {found.value:.4f} [{found.low:.4f}, {found.high:.4f}]. "
        "Another seed is not covered: run it and its nearest rival with three seeds each, and `anygrpo compare` them."
    )


def table(rows: list[Result]) -> str:
    """The trials as text: value with its 95% half-width, difference to the best with its own, settings."""
    lines = [f"{'':4s}  {'value':20s} {'minus the best':22s} settings"]
    for row in rows:
        settings = "  ".join(f"{name.split('.')[-1]}={_text(value)}" for name, value in row.settings.items())
        value = row.state if row.value is None else f"{row.value:.4f} +- {_95 * row.se:.4f}"
        mark = "" if row.paired else " (unpaired)"
        gap = "" if row.gap is None else f"{row.gap:+.4f} +- {row.factor * row.gap_se:.4f}{mark}"
        lines.append(f"{row.number:4d}  {value:20s} {gap:22s} {settings}")
    return "\n".join(lines)


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
