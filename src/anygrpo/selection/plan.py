"""Which selections to score next so that a comparison of two policies is decided, and how many calls that takes.

Where two policies pick the same, they do not differ, whatever the pick is worth: no call is needed. Of the other
queries those count that are judged for both. What is unknown is asked in random order: an order by cost or by
probability would make the first part of the answers another population than the rest.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.selection.task import Selection
from anygrpo.spoken import say

_POWER = 2.8
"""Standard errors from 0 at which a two-sided 5% test has power .8."""


@dataclass(frozen=True)
class Ask:
    """A selection to score: of a query (its number), as whose pick."""

    query: int
    selection: Selection
    by: str


@dataclass(frozen=True)
class Plan:
    """Attributes:
    n: queries. same: with equal picks. known: judged for both, equal picks included.
    spread: standard deviation of the difference a query (assumed where too few are known: `assumed`).
    asks: selections to score, in order. decides: how many of them until `difference` shows with power .8; None: not
        even all do.
    detectable: smallest difference that all of them would show.
    """

    n: int
    same: int
    known: int
    spread: float
    assumed: bool
    difference: float
    asks: tuple[Ask, ...]
    decides: int | None
    detectable: float

    @property
    def sentence(self) -> str:
        spread = say("assumed", "假定") if self.assumed else say("of the judged ones", "由已评判的算出")
        start = say(
            f"{self.n} held-out queries, {self.same} with equal picks, {self.known} judged on both sides (spread "
            f"{self.spread:.2f}, {spread}): ",
            f"{self.n} 个留出查询，{self.same} 个选择相同，{self.known} 个两边都有评判"
            f"（标准差 {self.spread:.2f}，{spread}）：",
        )
        difference, shown = f"{self.difference:.3f}", f"{self.detectable:.3f}"
        if self.decides == 0:
            return start + say(
                f"a difference of {difference} shows already, without a call",
                f"不必再调用，{difference} 的差异已能看出",
            )
        if self.decides is None:
            if not self.asks:
                return start + say(
                    f"all are judged, and show {shown} at the least. Hold out more queries",
                    f"都已评判，至少能看出 {shown}。请留出更多查询",
                )
            calls = len(self.asks)
            return start + say(
                f"not even all {calls} calls show a difference of {difference}; they show {shown}. "
                "Hold out more queries",
                f"全部 {calls} 次调用也看不出 {difference} 的差异，只能看出 {shown}。请留出更多查询",
            )
        return start + say(
            f"{self.decides} calls decide whether they differ by {difference}",
            f"{self.decides} 次调用可判定差异是否达到 {difference}",
        )


def plan(
    picks: tuple[list[Selection], list[Selection]],
    outcomes: tuple[Tensor, Tensor],
    names: tuple[str, str],
    difference: float,
    seed: int = 0,
) -> Plan:
    """Of two policies' picks and their outcomes [n] (NaN: unknown) on the same queries."""
    n = len(picks[0])
    same = torch.tensor([a == b for a, b in zip(*picks)], dtype=torch.bool)
    both = torch.isfinite(outcomes[0]) & torch.isfinite(outcomes[1])
    known = both | same
    gap = torch.where(same, 0.0, torch.nan_to_num(outcomes[0] - outcomes[1]).double())
    measured = gap[known]
    differs = float((~same).double().mean())
    enough = int((both & ~same).sum()) >= 10
    spread = float(measured.std(correction=1)) if enough else math.sqrt(max(differs, 1.0 / n) / 2)
    asks, at = [], int(known.sum())
    decides = 0 if _shows(spread, at, difference) else None
    order = (~known).nonzero()[:, 0].tolist()
    random.Random(seed).shuffle(order)
    for q in order:
        asks += [Ask(q, rows[q], name) for rows, x, name in zip(picks, outcomes, names) if not torch.isfinite(x[q])]
        at += 1
        if decides is None and _shows(spread, at, difference):
            decides = len(asks)
    detectable = _POWER * spread / math.sqrt(max(1, n))
    return Plan(n, int(same.sum()), int(known.sum()), spread, not enough, difference, tuple(asks), decides, detectable)


def _shows(spread: float, n: int, difference: float) -> bool:
    return n > 1 and _POWER * spread / math.sqrt(n) <= difference


def write_plan(path: Path, made: Plan, prompts: list[dict[str, Any]], count: int) -> None:
    """The first `count` selections as a file of stored candidates without scores: fill in `vqa_correct` (or other
    scores) and name it in task.more_files."""
    table: dict[str, Any] = {"_meta": {"made_by": "anygrpo select plan", "fill_in": "vqa_correct, vqa_acc_score, ..."}}
    for ask in made.asks[:count]:
        prompt = prompts[ask.query]
        entry = table.setdefault(
            str(prompt["id"]), {"candidate_pool_ids": list(prompt["ids"]), "pointer_candidates": []}
        )
        row = {
            "pointer": [prompt["ids"][i] for i in ask.selection],
            "pointer_pos": list(ask.selection),
            "gen_method": "planned",
            "picked_by": ask.by,
            "vqa_correct": None,
        }
        entry["pointer_candidates"].append(row)
    path.write_text(json.dumps(table, ensure_ascii=False, indent=1), encoding="utf-8")
