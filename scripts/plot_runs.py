"""Draw the curves of several runs of one recipe into one picture, and print its held-out table.

python scripts/plot_runs.py docs/pictures/demo.png runs/demo-1 runs/demo-2 runs/demo-3
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from anygrpo.train.folder import read_rows

MEASURE = "eval/accuracy"


def main(picture: Path, folders: list[Path]) -> None:
    """One line a run: sampled reward thin, held-out accuracy thick with its standard error."""
    figure, axes = plt.subplots(figsize=(7.5, 3.6), dpi=150)
    before, after = [], []
    for colour, folder in zip(("#2a6f97", "#c8553d", "#588157", "#7b5ea7", "#8a6d3b", "#6c757d"), folders):
        rows, _ = read_rows(folder / "metrics.jsonl")
        sampled = [(r["step"] + 1, r["reward/mean"]) for r in rows if r["step"] >= 0 and "reward/mean" in r]
        held = [(r["step"] + 1, r[MEASURE], r["eval/reward_se"]) for r in rows if MEASURE in r]
        axes.plot(*zip(*sampled), color=colour, alpha=0.35, linewidth=1)
        x, y, se = zip(*held)
        axes.errorbar(x, y, yerr=se, color=colour, linewidth=2, marker="o", markersize=4, label=folder.name)
        seconds = sum(r.get("time/step", 0.0) for r in rows)
        print(f"{folder.name}: {y[0]:.3f} -> {y[-1]:.3f} (standard error {se[-1]:.3f}) in {seconds:.0f} s")
        before.append(y[0])
        after.append(y[-1])
    spread = statistics.stdev(after) if len(after) > 1 else 0.0
    print(f"mean {statistics.mean(before):.3f} -> {statistics.mean(after):.3f}, sd over runs {spread:.3f}")
    axes.set_xlabel("step")
    axes.set_ylabel("held-out accuracy (thin: sampled reward)")
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
