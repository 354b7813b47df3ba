"""The table of recipes/llm/maze.toml: mazes won and turns needed before and after GRPO, over seeds and mazes.

    python bench/maze.py runs/maze-0 runs/maze-1 runs/maze-2

Reads the evaluations at the end of both stages. A maze that is not won counts as the limit, eight turns.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from anygrpo.core.intervals import arms

TURNS = 8


def read(file: Path) -> dict[str, tuple[float, float]]:
    """Of each maze: won, turns."""
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {row["text"]: measured(row["components"]["arrived"], row["components"]["environment"]) for row in rows}


def measured(won: float, paid: float) -> tuple[float, float]:
    """`Maze` pays (9 - turns) / 8 for arriving."""
    return won, TURNS + 1 - TURNS * paid if won else TURNS


def main(runs: list[str]) -> None:
    ends = [sorted((Path(run) / "evaluations").glob("step_*.jsonl"))[-2:] for run in runs]
    before, after = ([read(pair[i]) for pair in ends] for i in (0, 1))
    mazes = sorted(before[0])
    for i, name in enumerate(("won", "turns")):
        a, b = (torch.tensor([[one[m][i] for m in mazes] for one in side]).double() for side in (before, after))
        print(name, *(f"{float(x):.3f} to {float(y):.3f}" for x, y in zip(a.mean(1), b.mean(1))), sep="; ")
        found = arms(a, b)
        print(f"  {found.difference:+.3f} [{found.low:+.3f}, {found.high:+.3f}], seeds and mazes")


if __name__ == "__main__":
    main(sys.argv[1:])
