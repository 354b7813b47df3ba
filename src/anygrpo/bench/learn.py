"""What a user feels: seconds of training until the held-out answers are good enough, beside a peer with the recipe's
own settings. Each side trains in a process of its own, seed by seed in alternation, and is looked at every few steps;
looking is not in its seconds."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from anygrpo.bench.rounds import Measured, Worker
from anygrpo.errors import DataError
from anygrpo.spoken import Text

WORKERS = {
    side: Worker(side, f"anygrpo.bench.{name}") for side, name in (("anygrpo", "learn_ours"), ("trl", "learn_trl"))
}


def compare(
    recipe: str, peer: str | None, seeds: list[int], steps: int, every: int, until: float, threads: int
) -> dict[str, Any]:
    """One record: both sides' curves by seed, and what `record` makes of them.

    Args:
        recipe: of a causal language model trained by GRPO.
        until: the held-out accuracy at which a side's clock is read.

    Raises:
        DataError: no such recipe, or the peer is not installed. TrainingError: a process failed.
    """
    if not Path(recipe).is_file():
        raise DataError(
            Text(f"no recipe {recipe!r}", f"没有配方 {recipe!r}"),
            Text("give --recipe FILE.toml", "请给出 --recipe FILE.toml"),
        )
    if peer:
        WORKERS[peer].need((peer, "datasets"), "pip install trl datasets")
    sides: dict[str, list[Measured]] = {"anygrpo": []} | ({peer: []} if peer else {})
    for seed in seeds:
        work = ["--recipe", recipe, "--seed", str(seed), "--steps", str(steps), "--every", str(every)]
        for side, runs in sides.items():
            runs.append(WORKERS[side].run(work, threads, f"{recipe}, seed {seed}"))
    return record(sides, peer, until) | {"recipe": recipe, "seeds": seeds, "threads": threads}


def record(sides: dict[str, list[Measured]], peer: str | None, until: float) -> dict[str, Any]:
    """Seconds until `until` of each seed (None: not reached), medians over the seeds that reached it on both sides, and
    what each side's steps took.

    A run is {"curve": [[seconds of training, step, accuracy], ...]}, the start first.
    """
    row: dict[str, Any] = {
        "until": until,
        "curves": {side: [run["curve"] for run in runs] for side, runs in sides.items()},
    }
    reached = {side: [reaching(run["curve"], until) for run in runs] for side, runs in sides.items()}
    row["seconds_to"] = reached
    row["step_s"] = {
        side: statistics.median(run["curve"][-1][0] / max(run["curve"][-1][1], 1) for run in runs)
        for side, runs in sides.items()
    }
    if peer:
        pairs = [(a, b) for a, b in zip(reached["anygrpo"], reached[peer]) if a is not None and b is not None]
        row["ratio"] = statistics.median(b / a for a, b in pairs) if pairs else None
    return row


def reaching(curve: list[list[float]], until: float) -> float | None:
    """Seconds of training at the first look that found at least `until`; None: none did."""
    return next((seconds for seconds, _, accuracy in curve if accuracy >= until), None)
