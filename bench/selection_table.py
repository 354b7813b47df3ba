"""What each single demonstration, and none, makes of every training and validation query: a recipe's whole first pick.

    python bench/selection_table.py recipes/selection/smollm2_demonstrations.toml OUT.npz [--task.path movie ...]

Writes correct [queries, pool + 1] (the last column: no demonstration), gt_prob of the same shape, and the names of the
queries; prints the accuracy of the best single demonstration on validation (chosen on training queries), of the
nearest one, and of the best for each query.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from anygrpo.core.build import build_task
from anygrpo.recipe.load import load_recipe
from anygrpo.selection.task import nearest

_QUERIES_AT_ONCE = 128


def main(recipe: str, out: str, *flags: str) -> None:
    task = build_task(load_recipe(Path(recipe), list(flags)).resolved_stages()[-1].task, 0)
    names = [f"{split}-{i}" for split in ("train", "validation") for i in range(len(task.texts[split]))]
    size = len(task.texts["pool"])
    singles = [(i,) for i in range(size)] + [()]
    parts = []
    for a in range(0, len(names), _QUERIES_AT_ONCE):
        prompts = [task.prompt(name) for name in names[a : a + _QUERIES_AT_ONCE]]
        parts.append(task.judge(prompts, [singles] * len(prompts)))
    correct, truth = (torch.cat([part[name] for part in parts]).numpy() for name in ("correct", "gt_prob"))
    np.savez_compressed(out, correct=correct.astype(np.int8), gt_prob=truth.astype(np.float16), names=np.array(names))
    held = np.array([name.startswith("validation") for name in names])
    best = int(correct[~held, :size].mean(0).argmax())
    near = [nearest(task.prompt(name), 1)[0] for name in np.array(names)[held].tolist()]
    row = correct[held]
    print(f"{held.sum()} validation queries: none {row[:, size].mean():.3f}, fixed ({best}) {row[:, best].mean():.3f}")
    print(f"nearest {row[np.arange(len(near)), near].mean():.3f}, best of {size} {row[:, :size].max(1).mean():.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
