"""Products with items that each prompt has of its own, [u, M, h], or that all share, [1, M, h]: then no copy is made of
them, nor u gradients."""

from __future__ import annotations

import torch
from torch import Tensor


def compared(x: Tensor, items: Tensor) -> Tensor:
    """Products of x [u, r, h] with items [u or 1, M, h]: [u, r, M]."""
    if len(items) < len(x):
        return x @ items[0].T
    return torch.bmm(x, items.transpose(1, 2))


def mixed_of(weights: Tensor, items: Tensor) -> Tensor:
    """Items [u or 1, M, h] by weights [u, r, M]: [u, r, h]."""
    return weights @ items[0] if len(items) < len(weights) else torch.bmm(weights, items)


def gathered(items: Tensor, picks: Tensor) -> Tensor:
    """Items [u or 1, M, h] at picks [u, r]: [u, r, h]; any item where nothing was picked."""
    if len(items) < len(picks):
        return items[0][picks.clamp(min=0)]
    return items.gather(1, picks.clamp(min=0)[..., None].expand(-1, -1, items.shape[-1]))
