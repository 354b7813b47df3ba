"""Measures of a set of motions that no reward optimises: ours, and the published protocol on anybody's embeddings.

Published (Guo et al., CVPR 2022): R-precision and matching distance in groups of 32, Frechet distance to the test set,
diversity over 300 pairs, multimodality over 10 pairs of 30 samples a caption; 20 repetitions, mean and 1.96
sd / sqrt(20).
Numbers of two tables compare only where the ground truth's row beside them does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def frechet(a: Tensor, b: Tensor) -> float:
    """Frechet distance between Gaussians fitted to embeddings a [n, D] and b [m, D]:
    |mean difference|^2 + trace(A + B - 2 (A^1/2 B A^1/2)^1/2)."""
    a, b = a.double(), b.double()
    shift = (a.mean(0) - b.mean(0)).square().sum()
    first, second = torch.cov(a.T), torch.cov(b.T)
    root = _root(first)
    return float(shift + torch.trace(first + second - 2 * _root(root @ second @ root)))


def _root(matrix: Tensor) -> Tensor:
    """The square root of a symmetric positive semi-definite matrix; eigenvalues below 0 by rounding count as 0."""
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    return vectors * values.clamp(min=0).sqrt() @ vectors.T


def diversity(pairs: list[tuple[str, Tensor]]) -> float:
    """Root mean square difference of standardised features between two motions of one caption, over all such pairs and
    the frames both have. 0 is collapse."""
    groups: dict[str, list[Tensor]] = {}
    for caption, motion in pairs:
        groups.setdefault(caption, []).append(motion)
    differences = []
    for motions in groups.values():
        for i, a in enumerate(motions):
            for b in motions[:i]:
                n = min(len(a), len(b))
                differences.append((a[:n] - b[:n]).square().mean())
    return float(torch.stack(differences).mean().sqrt()) if differences else 0.0


GROUP = 32
PAIRS = 300


def r_precision(texts: Tensor, motions: Tensor, top: int = 3, group: int = GROUP) -> list[float]:
    """Share of motions whose own text is among the k nearest of the group's, k = 1 .. top: [n, D] each, row i a pair.
    Euclidean; the incomplete last group is left out."""
    hits = torch.zeros(top, dtype=torch.float64)
    whole = len(texts) // group * group
    for at in range(0, whole, group):
        apart = torch.cdist(texts[at : at + group].double(), motions[at : at + group].double())
        order = apart.argsort(1)[:, :top] == torch.arange(group)[:, None]
        hits += order.double().cumsum(1).clamp(max=1).sum(0)
    return (hits / whole).tolist() if whole else [math.nan] * top


def matching_distance(texts: Tensor, motions: Tensor) -> float:
    """Mean distance of a motion's embedding to its own text's."""
    return float((texts.double() - motions.double()).norm(dim=-1).mean())


def spread(motions: Tensor, pairs: int, generator: torch.Generator) -> float:
    """Mean distance of `pairs` random pairs of embeddings [n, D]: two draws, each without replacement."""
    count = min(pairs, len(motions))
    first, second = (motions[torch.randperm(len(motions), generator=generator)[:count]] for _ in range(2))
    return float((first.double() - second.double()).norm(dim=-1).mean())


def multimodality(motions: Tensor, pairs: int, generator: torch.Generator) -> float:
    """Mean over captions of `spread` among the samples of each: [captions, samples, D]."""
    return sum(spread(one, pairs, generator) for one in motions) / len(motions)


def repeated(measure: Callable[[int], dict[str, float]], times: int = 20) -> dict[str, tuple[float, float]]:
    """(mean, half width of the 95% interval, 1.96 sd / sqrt(times)) of each number over repetitions 0 .. times - 1."""
    rows = [measure(i) for i in range(times)]
    out = {}
    for name in rows[0]:
        values = torch.tensor([row[name] for row in rows], dtype=torch.float64)
        out[name] = (float(values.mean()), 1.96 * float(values.std(correction=0)) / math.sqrt(times))
    return out
