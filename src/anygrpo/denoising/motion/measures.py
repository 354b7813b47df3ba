"""Measures of a set of motions that no reward optimises."""

from __future__ import annotations

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
