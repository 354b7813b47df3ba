"""Runs that differ in how many queries they were trained on: one table, shots against training queries, paired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anygrpo.files import toml_table


def by_training_queries(runs: Sequence[Path]) -> dict[int, list[Path]]:
    """Run folders by `task.subset` (or `task.queries`) of their last stage; 0: all queries, or an endless task."""
    found: dict[int, list[Path]] = {}
    for run in runs:
        config = run / "config.toml" if run.is_dir() else run
        table = _table(config)
        stages = table.get("stages") or [{}]
        task = table.get("task", {}) | stages[-1].get("task", {})
        count = task.get("subset") or task.get("queries") or 0
        found.setdefault(count if isinstance(count, int) else 0, []).append(run)
    return found


def table(reports: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """Accuracy of the policy and of retrieval at each number of shots, and the paired difference at all shots.

    Returns:
        "rows": JSON-ready, and "text": lines to print.
    """
    shots = next(iter(reports.values()))["shots"]
    rows, text = [], [f"\n{'training queries':18s}" + "".join(f"{k:>10d} shots" for k in shots)]
    for count, report in reports.items():
        policy = report["accuracy"].get("policy", [None] * len(shots))
        against = {
            name: row["verdict"] for name, row in report["paired"].items() if "nearest" in name or "start" in name
        }
        runs = report["runs"]
        rows.append({"training_queries": count or None, "runs": runs, "accuracy": policy, "paired": against})
        cells = "".join(f"{'unknown' if x is None else f'{x:.3f}':>16s}" for x in policy)
        text.append(f"{count or 'all'!s:18s}{cells}   ({runs} run(s))")
        text += [f"{'':4s}{name:32s} {verdict}" for name, verdict in against.items()]
    nearest = next(iter(reports.values()))["accuracy"].get("nearest")
    if nearest:
        text.append(f"{'nearest':18s}" + "".join(f"{'unknown' if x is None else f'{x:.3f}':>16s}" for x in nearest))
    return {"shots": shots, "rows": rows, "text": text}


def _table(config: Path) -> dict[str, Any]:
    """A run's recipe as a plain table; an empty one where there is none that can be read."""
    try:
        return toml_table(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
