"""Rows of prompts that differ in shape, as one rollout."""

from __future__ import annotations

import torch
from torch import Tensor

Part = tuple[list[int], dict[str, Tensor], Tensor, Tensor]
"""Prompt positions, leaves [p, G, ...], log_probs and mask [p, G, T] of prompts of one shape."""


PIXELS = 2**22
"""Of pictures in one forward pass while sampling, at most (of one group, all)."""


def joined(parts: list[Part]) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Parts in prompt order, leaves padded with zeros to the largest shape: samples, log_probs and mask [P, G, T]."""
    order = torch.tensor([i for places, *_ in parts for i in places]).argsort()
    leaves = {key: padded([p[1][key] for p in parts])[order] for key in parts[0][1]}
    log_probs = padded([p[2] for p in parts])
    mask = padded([p[3] for p in parts])
    return leaves, log_probs[order], mask[order]


def padded(pieces: list[Tensor]) -> Tensor:
    """Concatenate along the first dimension, others padded with zeros at the end to the largest size."""
    size = [max(p.shape[d] for p in pieces) for d in range(1, pieces[0].dim())]
    if all(list(p.shape[1:]) == size for p in pieces):
        return torch.cat(pieces)
    out = pieces[0].new_zeros(sum(p.shape[0] for p in pieces), *size)
    at = 0
    for p in pieces:
        out[(slice(at, at + p.shape[0]), *(slice(0, k) for k in p.shape[1:]))] = p
        at += p.shape[0]
    return out


def prompts_at_once(shape: tuple[int, ...], group_size: int, rows: int) -> int:
    """Prompts of one input shape in a pass, by rows and by pixels: a whole photograph is many rows' worth of crops."""
    pixels = shape[-1] * shape[-2] if len(shape) > 2 else 1
    return max(1, min(rows, PIXELS // pixels) // group_size)
