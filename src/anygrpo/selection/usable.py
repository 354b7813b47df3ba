"""Which candidates of a file may be learnt from under a reward, and why the others may not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from anygrpo.selection.rewards import NEEDS
from anygrpo.selection.settings import RewardConfig
from anygrpo.selection.stored_query import Candidate, StoredQuery

Unwanted = Callable[[Candidate], str | None]
"""Why a candidate is left out, or None."""


def usable(
    queries: list[StoredQuery], reward: RewardConfig, fallback: str = "skip", also: Unwanted = lambda _: None
) -> tuple[list[StoredQuery], Counter[str]]:
    """Queries with their usable candidates (some may have none left), and how many were left out, by reason.

    Failed ones go, those judged by a fallback unless it is kept, and those without a part that the reward mode needs
    and others have (files of several writers). Legacy rewards give candidates that no beam search made the beam score
    `reward.missing_beam`.
    """
    needs = NEEDS[reward.mode]
    has = {n for n in needs for q in queries for x in q.candidates if n in x.parts and not x.failed}
    gone = Counter[str]()

    def why(x: Candidate) -> str | None:
        if x.failed:
            return "their evaluation failed"
        if x.by_fallback and fallback == "skip":
            return 'judged by a fallback (fallback = "keep" keeps them)'
        if any(n in has and n not in x.parts for n in needs):
            return f"without a part that {reward.mode} needs"
        return also(x)

    out = []
    for query in queries:
        row = [_with_beam(x, reward) if "beam_score" in has else x for x in query.candidates]
        reasons = [why(x) for x in row]
        gone.update(r for r in reasons if r)
        out.append(replace(query, candidates=tuple(x for x, r in zip(row, reasons) if r is None)))
    return out, gone


def _with_beam(x: Candidate, reward: RewardConfig) -> Candidate:
    return x if x.failed else replace(x, parts={"beam_score": reward.missing_beam} | x.parts)
