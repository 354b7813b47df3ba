"""What a pool holds at best: the ceiling of every selector, by the true reward."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass

import torch
from torch import Tensor

from anygrpo.selection.task import Prompt, Selection, SelectionTask

_PROMPTS_AT_ONCE = 64


@dataclass(frozen=True)
class Oracle:
    """Ceiling of selections of at most k picks, none included.

    Attributes:
        correct: [shots, n]: whether some tried selection of at most k picks answers the query.
        tried: sets of exactly k picks that were tried for a query not yet answered by fewer.
        exact: every such set was tried (in the pool's order), so that no set of k picks is better.
    """

    correct: Tensor
    tried: tuple[int, ...]
    exact: tuple[bool, ...]

    @property
    def sentence(self) -> str:
        """How each number of shots was searched."""
        words = [
            f"{k}: {'all' if whole else 'random'} {n} sets"
            for k, (n, whole) in enumerate(zip(self.tried, self.exact), 1)
        ]
        return "at most k picks, none included; sets of k tried where fewer fail: " + ", ".join(words)


def oracle(task: SelectionTask, prompts: list[Prompt], shots: list[int], limit: int = 600, seed: int = 0) -> Oracle:
    """Search the pools of `prompts` for a selection that is correct.

    Args:
        limit: most sets of a size for one query; a size that has more is sampled at random.
    """
    solved = torch.tensor(_answered(task, prompts, [[()] for _ in prompts]))
    rows, tried, exact = [], [], []
    for k in shots:
        tried.append(0)
        exact.append(True)
        for a in range(0, len(prompts), _PROMPTS_AT_ONCE):
            open_ = [i for i in range(a, min(a + _PROMPTS_AT_ONCE, len(prompts))) if not solved[i]]
            sets = [_sets(prompts[i], k, limit, seed + i) for i in open_]
            for whole, row in sets:
                tried[-1], exact[-1] = max(tried[-1], len(row)), exact[-1] and whole
            for i, answered in zip(open_, _answered(task, [prompts[i] for i in open_], [row for _, row in sets])):
                solved[i] = answered
        rows.append(solved.clone())
    return Oracle(torch.stack(rows).double(), tuple(tried), tuple(exact))


def _sets(prompt: Prompt, k: int, limit: int, seed: int) -> tuple[bool, list[Selection]]:
    """Whether these are all sets of k choosable positions, and the sets."""
    excluded = set(prompt.get("excluded", ()))
    items = [i for i in range(len(prompt["candidates"])) if i not in excluded]
    if math.comb(len(items), k) <= limit:
        return True, list(itertools.combinations(items, k))
    draw = random.Random(seed)
    return False, [tuple(draw.sample(items, k)) for _ in range(limit)]


def _answered(task: SelectionTask, prompts: list[Prompt], sets: list[list[Selection]]) -> list[bool]:
    """Whether one of each prompt's sets is correct; short rows are filled with the empty selection."""
    width = max((len(row) for row in sets), default=0)
    if not width:
        return [False] * len(prompts)
    padded = [row + [()] * (width - len(row)) for row in sets]
    correct = torch.nan_to_num(task.judge(prompts, padded)["correct"]) > 0.5
    return [bool(row[: len(own)].any()) for row, own in zip(correct, sets)]
