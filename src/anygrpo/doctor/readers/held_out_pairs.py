"""Held-out gains of one of our run folders, prompt by prompt: what its rows' means and standard errors cannot show."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from anygrpo.doctor.log import Row

GAIN, ERROR = "eval/reward_gain", "eval/reward_gain_se"
SHARED = 0.9
"""Share of the prompts that both evaluations must have scored."""


def add_gains(folder: Path, rows: list[Row]) -> None:
    """Put the mean change of the held-out reward since the run's first evaluation, on the same prompts, and its
    standard error into the rows of later evaluations. Prompts without a score on either side (a fault of the machine)
    are left out; a file that is not whole, or of other prompts, adds nothing."""
    files = sorted(f for f in (folder / "evaluations").glob("step_*.jsonl") if f.stem[5:].isdecimal())
    by_step = {row.get("step"): row for row in rows if "eval/reward" in row}
    first = rewards_of(files[0]) if len(files) > 1 else {}
    for file in files[1:]:
        row, then = by_step.get(float(file.stem[5:]) - 1), rewards_of(file)
        gaps = [then[k] - x for k, x in first.items() if k in then]
        if row is None or len(gaps) < max(2, SHARED * max(len(first), len(then))):
            continue
        mean = math.fsum(gaps) / len(gaps)
        variance = math.fsum((g - mean) ** 2 for g in gaps) / (len(gaps) - 1)
        row[GAIN], row[ERROR] = mean, math.sqrt(variance / len(gaps))


def rewards_of(file: Path) -> dict[tuple[Any, str], float]:
    """(prompt's number, its text) -> reward; empty where the file cannot be read."""
    try:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
        return {(x["prompt"], str(x.get("text"))): float(x["reward"]) for x in lines if not x.get("fault")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
