"""The few collective operations that training needs; each is the identity in a single process."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if world_size() > 1 else 0


def is_main() -> bool:
    return rank() == 0


def sum_over_ranks(values: Tensor) -> Tensor:
    """The element-wise sum of a tensor over all ranks (in float64)."""
    if world_size() == 1:
        return values
    total = values.to(torch.float64)
    dist.all_reduce(total)
    return total.to(values.dtype)


def max_over_ranks(values: Tensor) -> Tensor:
    if world_size() == 1:
        return values
    largest = values.clone()
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return largest
