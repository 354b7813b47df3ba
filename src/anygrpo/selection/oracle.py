"""What a pool holds at best: the ceiling of every selector, by the true reward."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anygrpo.selection.pick_judge import Judging
from anygrpo.selection.task import Prompt, Selection
from anygrpo.spoken import say

_PROMPTS_AT_ONCE = 64


@dataclass(frozen=True)
class Oracle:
    """Ceiling of selections of at most k picks, none included.

    Attributes:
        correct: [shots, n]: whether some tried selection of at most k picks answers the query (of graded outcomes, the
            best one).
        tried: sets of exactly k picks that were tried for a query not yet answered by fewer.
        exact: every such set was tried (in the pool's order), so that no set of k picks is better.
        stored: only a file's own selections were tried.
    """

    correct: Tensor
    tried: tuple[int, ...]
    exact: tuple[bool, ...]
    stored: bool = False

    @property
    def sentence(self) -> str:
        """How each number of shots was searched."""
        if self.stored:
            return say(
                "some stored selection of at most k picks is right; what the file does not hold may be better",
                "文件中存有某个至多 k 个示例的选择是对的；文件之外可能更好",
            )
        words = [
            say(f"{k}: {'all' if whole else 'random'} {n} sets", f"{k} 个：{'全部' if whole else '随机'} {n} 组")
            if n
            else say(f"{k}: none needed", f"{k} 个：无需")
            for k, (n, whole) in enumerate(zip(self.tried, self.exact), 1)
        ]
        head = say(
            "at most k picks, none included; sets of k tried where fewer fail: ",
            "至多 k 个示例（含零个）；更少不行时才试 k 个的组合：",
        )
        return head + say(", ", "，").join(words)


def stored_oracle(judging: Judging, prompts: list[Prompt], shots: list[int]) -> Oracle:
    """The best of each query's stored selections of at most k picks; NaN where it has none so short."""
    rows = []
    queries = [judging.task.by_id[p["id"]] for p in prompts]
    for k in shots:
        own = [[c.selection for c in q.candidates if len(c.selection) <= k] for q in queries]
        best = [_best(judging, [p], [row])[0] if row else math.nan for p, row in zip(prompts, own)]
        rows.append(torch.tensor(best, dtype=torch.float64))
    return Oracle(torch.stack(rows), tuple(0 for _ in shots), tuple(False for _ in shots), True)


def oracle(task: Any, prompts: list[Prompt], shots: list[int], limit: int = 600, seed: int = 0) -> Oracle:
    """Search the pools of `prompts` for the best selection; where outcomes are right or wrong, until one is right.

    Args:
        task: a task, or its `Judging`. limit: most sets of a size for one query; a size that has more is sampled.
    """
    judging = task if isinstance(task, Judging) else Judging(task)
    best = torch.tensor(_best(judging, prompts, [[()] for _ in prompts]))
    rows, tried, exact = [], [], []
    for k in shots:
        tried.append(0)
        exact.append(True)
        for a in range(0, len(prompts), _PROMPTS_AT_ONCE):
            solved = best > 0.5 if judging.measure in (None, "correct") else torch.zeros(len(best), dtype=torch.bool)
            open_ = [i for i in range(a, min(a + _PROMPTS_AT_ONCE, len(prompts))) if not solved[i]]
            sets = [_sets(prompts[i], k, limit, seed + i) for i in open_]
            for whole, row in sets:
                tried[-1], exact[-1] = max(tried[-1], len(row)), exact[-1] and whole
            found = _best(judging, [prompts[i] for i in open_], [row for _, row in sets])
            for i, value in zip(open_, found):
                best[i] = max(float(best[i]), value)
        rows.append(best.clone())
    found = torch.stack(rows).double()
    return Oracle(torch.where(torch.isfinite(found), found, torch.nan), tuple(tried), tuple(exact))


def _sets(prompt: Prompt, k: int, limit: int, seed: int) -> tuple[bool, list[Selection]]:
    """Whether these are all sets of k choosable positions, and the sets."""
    excluded = set(prompt.get("excluded", ()))
    items = [i for i in range(len(prompt["candidates"])) if i not in excluded]
    if math.comb(len(items), k) <= limit:
        return True, list(itertools.combinations(items, k))
    draw = random.Random(seed)
    return False, [tuple(draw.sample(items, k)) for _ in range(limit)]


def _best(judging: Judging, prompts: list[Prompt], sets: list[list[Selection]]) -> list[float]:
    """The best outcome of each prompt's sets; -inf where none is judged. Short rows are filled with a set of theirs."""
    width = max((len(row) for row in sets), default=0)
    if not width:
        return [-math.inf] * len(prompts)
    padded = [row + [row[0] if row else ()] * (width - len(row)) for row in sets]
    outcomes = judging.outcome(prompts, padded).nan_to_num(-math.inf)
    return [float(row[: len(own)].max()) if own else -math.inf for row, own in zip(outcomes, sets)]
