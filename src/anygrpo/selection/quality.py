"""What a file of stored candidates can teach, before a step is trained on it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from anygrpo.selection.findings import findings
from anygrpo.selection.rewards import NEEDS, PARTS, equivalent_modes, reward
from anygrpo.selection.settings import RewardConfig
from anygrpo.selection.stored_query import METHODS, Candidate, StoredFile
from anygrpo.selection.usable import usable
from anygrpo.spoken import say

_TOP = (5, 3)


@dataclass(frozen=True)
class _Table:
    """Parts [P, G] (padded) of candidates that were evaluated, and which entries are real."""

    parts: dict[str, Tensor]
    valid: Tensor


PREFERRED = ("hard01_plus_gtprob", "hard_plus_soft", "hard_only", "soft_only", "info_score", "score")
"""Reward modes, the first that a file has the parts for is taken."""


def richest(stored: StoredFile) -> str | None:
    """The richest reward that some candidates allow; None where none has a score."""
    for mode in PREFERRED:
        config = RewardConfig(mode=mode)
        every = [c for q in usable(list(stored.queries), config)[0] for c in q.candidates]
        if every and all(n in c.parts for c in every for n in NEEDS[mode]):
            return mode
    return None


def inspect(
    file: StoredFile, config: RewardConfig, min_score_when_wrong: float = 0.0, fallback: str = "skip"
) -> dict[str, Any]:
    """Quality of a file under a reward mode.

    Args:
        min_score_when_wrong: the quality filter to try (candidates with h = 0 and s below it go).
        fallback: "skip" or "keep" candidates that a stand-in for the data set's measure judged.

    Returns:
        JSON-ready numbers, and "findings": sentences about what will not work.
    """
    every = [c for q in file.queries for c in q.candidates]
    queries, gone = usable(list(file.queries), config, fallback)
    file, whole = replace(file, queries=tuple(queries)), file
    table = _table(file)
    report: dict[str, Any] = {
        "layout": file.layout,
        "pointer_is": file.index,
        "pool": "given" if all(q.pool_given for q in file.queries) else "union of the candidates' own ids",
        "queries": len(file.queries),
        "candidates": len(every),
        "usable": sum(len(q.candidates) for q in queries),
        "left_out": dict(gone),
        "candidates_per_query": _range([len(q.candidates) for q in file.queries]),
        "pool_size": _range([len(q.pool) for q in file.queries]),
        "shots": _range([len(c.selection) for c in every]),
        "methods": dict(Counter(c.method or "unknown" for c in every)),
        "judged_by": dict(Counter(c.judged_by or "unknown" for c in every)),
        "parts": {name: n for name in PARTS if (n := sum(name in c.parts for c in every))},
        "failed": sum(c.failed for c in every),
        "duplicates": _duplicates(whole),
        "correct": _correct(file),
        "reward_mode": config.mode,
        "propensities": _propensities(every),
        "dead_components": _dead(table),
        "equivalent_modes": equivalent_modes(table.parts, table.valid) if table.parts else [],
    }
    missing = [name for name in NEEDS[config.mode] if name not in table.parts]
    if not missing:
        report |= _rewards(table, config, min_score_when_wrong)
    report["findings"] = [f"{note[0].upper()}{note[1:]}." for note in file.notes] + findings(report, missing, every)
    return report


def _table(file: StoredFile) -> _Table:
    rows = [q.candidates for q in file.queries]
    shape = (len(rows), max(1, max(map(len, rows))))
    every = [c for row in rows for c in row]
    names = [name for name in PARTS if every and all(name in c.parts for c in every)]
    valid = torch.zeros(shape, dtype=torch.bool)
    parts = {name: torch.zeros(shape) for name in names}
    for p, row in enumerate(rows):
        valid[p, : len(row)] = True
        for name in names:
            parts[name][p, : len(row)] = torch.tensor([c.parts[name] for c in row])
    return _Table(parts, valid)


def live(rewards: Tensor, valid: Tensor) -> Tensor:
    """[P] bool: groups whose valid rewards differ."""
    high = rewards.masked_fill(~valid, -torch.inf).amax(-1)
    low = rewards.masked_fill(~valid, torch.inf).amin(-1)
    return high - low > 1e-6


def top_k(rewards: Tensor, valid: Tensor, k: int) -> Tensor:
    """[P, G] bool: the k best valid entries of each group."""
    best = rewards.masked_fill(~valid, -torch.inf).topk(min(k, rewards.shape[1]), dim=-1).indices
    return torch.zeros_like(valid).scatter(1, best, True) & valid


def zscore(rewards: Tensor, valid: Tensor, floor: float = 0.0) -> Tensor:
    """Advantages [P, G] by group z-score; 0 in constant groups and where invalid."""
    n = valid.sum(-1, keepdim=True)
    mean = torch.where(valid, rewards, 0.0).sum(-1, keepdim=True) / n.clamp_min(1)
    centred = torch.where(valid, rewards - mean, 0.0)
    std = (centred.square().sum(-1, keepdim=True) / (n - 1).clamp_min(1)).sqrt().clamp_min(max(floor, 1e-12))
    return torch.where(live(rewards, valid)[:, None], centred / std, 0.0)


def _rewards(table: _Table, config: RewardConfig, threshold: float) -> dict[str, Any]:
    rewards = reward(table.parts, config)
    stages = {"all": table.valid}
    kept = table.valid
    if threshold > 0 and {"correct", "accuracy_score"} <= table.parts.keys():
        kept = kept & ~((table.parts["correct"] == 0) & (table.parts["accuracy_score"] < threshold))
        stages["quality_filter"] = kept
    stages |= {f"top_{k}_by_reward": top_k(rewards, kept, k) for k in _TOP}
    groups = {}
    for name, valid in stages.items():
        alive = live(rewards, valid)
        advantages = zscore(rewards, valid)[valid]
        groups[name] = {
            "live_groups": int(alive.sum()),
            "live_share": alive.float().mean().item(),
            "advantage_std": advantages.std(correction=0).item() if advantages.numel() else 0.0,
        }
    levels = Counter(round(x, 6) for x in rewards[table.valid].tolist())
    in_group = torch.tensor([float(len(r[v].round(decimals=6).unique())) for r, v in zip(rewards, table.valid)])
    return {
        "reward_levels": {"distinct": len(levels), "mean_in_group": in_group.mean().item()},
        "groups": groups,
    }


def _range(values: list[int]) -> dict[str, float]:
    return {"min": min(values, default=0), "mean": sum(values) / max(1, len(values)), "max": max(values, default=0)}


def _duplicates(file: StoredFile) -> dict[str, int]:
    sequences = sets = 0
    otherwise = 0
    for q in file.queries:
        judged: dict[Any, set[Any]] = {}
        for c in q.candidates:
            if not c.failed:
                scores = {n: x for n, x in c.parts.items() if n != "beam_score"}
                judged.setdefault(c.selection, set()).add(tuple(sorted(scores.items())))
        otherwise += sum(len(scores) > 1 for scores in judged.values())
        sequences += len(q.candidates) - len({c.selection for c in q.candidates})
        sets += len(q.candidates) - len({frozenset(c.selection) for c in q.candidates})
    return {"same_sequence": sequences, "same_set": sets, "scored_otherwise": otherwise}


def _correct(file: StoredFile) -> dict[str, Any]:
    judged = [c for q in file.queries for c in q.candidates if "correct" in c.parts]
    if not judged:
        return {}
    share = lambda some: sum(c.parts["correct"] for c in some) / len(some)  # noqa: E731
    methods = [*METHODS, *sorted({c.method for c in judged} - {*METHODS, ""})]
    by_method = {m: share(some) for m in methods if (some := [c for c in judged if c.method == m])}
    return {
        "share": share(judged),
        "by_method": by_method,
        "queries_with_a_positive": sum(q.positive for q in file.queries) / len(file.queries),
        "best_of_all": sum(q.positive for q in file.queries) / len(file.queries),
    }


def _propensities(every: list[Candidate]) -> dict[str, Any]:
    return {
        "usable": sum(c.propensity is not None for c in every),
        "deterministic": sum(c.method in ("beam", "retrieval") for c in every),
        "stored": sum(c.log_prob is not None for c in every),
        "above_zero": sum(c.log_prob is not None and c.log_prob > 0 for c in every),
    }


def _dead(table: _Table) -> dict[str, str]:
    """Components that cannot move a reward, and why."""
    dead = {}
    for name, part in table.parts.items():
        values = part[table.valid]
        if values.abs().max() <= 1e-5:
            dead[name] = say(f"never above {values.abs().max():.1e}", f"从不超过 {values.abs().max():.1e}")
        elif not live(part, table.valid).any():
            dead[name] = "the same for all candidates of every query"
    return dead
