"""Did the policy change? Agreement of selections, exact KL, weights by module, and how far a change can reach."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Selection = tuple[int, ...]


def agreement(a: Sequence[Selection], b: Sequence[Selection]) -> dict[str, float]:
    """Share of queries with the same sequence, the same set, and the mean share of equal slots."""
    n = max(1, len(a))
    slots = [sum(x == y for x, y in zip(p, q)) / max(len(p), len(q), 1) if p or q else 1.0 for p, q in zip(a, b)]
    return {
        "sequence": sum(p == q for p, q in zip(a, b)) / n,
        "set": sum(set(p) == set(q) for p, q in zip(a, b)) / n,
        "slot": sum(slots) / n,
    }


def cannot_flip(probabilities: Tensor, kl: Tensor) -> Tensor:
    """[n] bool: queries whose likeliest first pick cannot have changed within a KL divergence.

    By Pinsker's inequality two distributions with KL <= k differ by at most sqrt(k / 2) on any event, so a lead of
    more than 2 sqrt(k / 2) over the second option survives.

    Args:
        probabilities: [n, C] of the first pick, before. kl: [n] or a number, nats.
    """
    best = probabilities.topk(2, dim=-1).values
    return best[:, 0] - best[:, 1] > (2 * torch.as_tensor(kl, dtype=probabilities.dtype).clamp_min(0)).sqrt()


def weight_change(before: dict[str, Tensor], after: dict[str, Tensor]) -> dict[str, float]:
    """Relative change |after - before| / |before| of each module (the name up to its last dot)."""
    moved: dict[str, float] = {}
    size: dict[str, float] = {}
    for name, old in before.items():
        module = name.rpartition(".")[0] or name
        moved[module] = moved.get(module, 0.0) + float((after[name] - old).double().square().sum())
        size[module] = size.get(module, 0.0) + float(old.double().square().sum())
    return {module: math.sqrt(moved[module] / size[module]) if size[module] else math.inf for module in moved}


def ndcg(scores: Sequence[float], relevance: Sequence[float], k: int) -> float:
    """NDCG@k of candidates ranked by `scores`, with gains `relevance` (>= 0); 1 where nothing is relevant."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    gain = sum(relevance[i] / math.log2(rank + 2) for rank, i in enumerate(order[:k]))
    ideal = sum(r / math.log2(rank + 2) for rank, r in enumerate(sorted(relevance, reverse=True)[:k]))
    return gain / ideal if ideal > 0 else 1.0


def regret(scores: Sequence[float], rewards: Sequence[float]) -> float:
    """Best reward among the candidates, minus that of the one with the highest score."""
    return max(rewards) - rewards[max(range(len(scores)), key=scores.__getitem__)]
