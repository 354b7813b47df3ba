"""The few collective operations that training needs; each is the identity in a single process.

Every rank makes the same calls in the same order. Tensors live where the backend of their device reaches them
(gloo for CPU, nccl for CUDA); Python objects travel over gloo.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")

_BUCKET = 1 << 26
"""Gradient elements that travel together: 256 MB in float32."""


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if world_size() > 1 else 0


def is_main() -> bool:
    return rank() == 0


def rank_seed(seed: int) -> int:
    """A seed of this rank's own; rank 0 keeps the given one."""
    return (seed + rank() * 15_485_863) % (2**31 - 1)


def sum_over_ranks(values: Tensor) -> Tensor:
    """The element-wise sum of a tensor over all ranks (in float64)."""
    if world_size() == 1:
        return values
    total = values.to(torch.float64)
    dist.all_reduce(total)
    return total.to(values.dtype)


def max_over_ranks(values: Tensor) -> Tensor:
    """The element-wise maximum of a tensor over all ranks."""
    if world_size() == 1:
        return values
    largest = values.clone()
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return largest


def most_over_ranks(number: float) -> float:
    """The largest of all ranks' numbers."""
    return float(max_over_ranks(torch.tensor(float(number), dtype=torch.float64)))


def total_over_ranks(number: float) -> float:
    """The sum of one number over all ranks."""
    return float(sum_over_ranks(torch.tensor(float(number), dtype=torch.float64)))


def gather(value: T) -> list[T]:
    """Every rank's object, in rank order. Tensors in it must be on the CPU."""
    if world_size() == 1:
        return [value]
    everyone: list[Any] = [None] * world_size()
    dist.all_gather_object(everyone, value)
    return everyone


def from_main(value: T) -> T:
    """Rank 0's object, on every rank."""
    if world_size() == 1:
        return value
    box: list[Any] = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def share(items: Sequence[T]) -> list[T]:
    """This rank's part of a list: consecutive, sizes differ by one at most, so concatenation restores the order."""
    n, size, mine = len(items), world_size(), rank()
    begin = mine * (n // size) + min(mine, n % size)
    return [items[i] for i in range(begin, begin + n // size + (mine < n % size))]


def local(tensor: Tensor) -> Tensor:
    """This rank's shard of a sharded tensor; a plain tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor  # type: ignore[operator]


def is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "to_local")


@torch.no_grad()
def sum_gradients(gradients: Sequence[Tensor | None], like: Sequence[Tensor]) -> list[Tensor | None]:
    """Each tensor summed over ranks; None where every rank has None. `like` gives the shapes of what is missing here.

    Shards are left as they are: their reduction has happened in the backward pass.
    """
    if world_size() == 1:
        return list(gradients)
    present = torch.tensor([g is not None for g in gradients], dtype=torch.float64, device=local(like[0]).device)
    wanted = (sum_over_ranks(present) > 0).tolist()
    out: list[Tensor | None] = list(gradients)
    bucket: list[int] = []
    for i, (g, p) in enumerate(zip(gradients, like)):
        if not wanted[i] or is_sharded(p):
            continue
        out[i] = torch.zeros_like(p) if g is None else g
        bucket.append(i)
        if sum(like[j].numel() for j in bucket) >= _BUCKET:
            _sum_in_place([out[j] for j in bucket])  # type: ignore[misc]
            bucket = []
    if bucket:
        _sum_in_place([out[j] for j in bucket])  # type: ignore[misc]
    return out


def _sum_in_place(tensors: list[Tensor]) -> None:
    flat = torch.cat([t.flatten() for t in tensors])
    dist.all_reduce(flat)
    for t, part in zip(tensors, flat.split([t.numel() for t in tensors])):
        t.copy_(part.view_as(t))


@torch.no_grad()
def total_norm(tensors: Sequence[Tensor | None]) -> Tensor:
    """The L2 norm of all tensors together, the same on every rank; shards count once each."""
    given = [t for t in tensors if t is not None]
    plain = [t for t in given if not is_sharded(t)]
    norm = torch.nn.utils.get_total_norm(plain) if plain else torch.zeros((), device=_device(given))
    shards = [local(t) for t in given if is_sharded(t)]
    if not shards:
        return norm
    squares = torch.stack([s.double().square().sum() for s in shards]).sum()
    return (norm.double().square() + sum_over_ranks(squares)).sqrt().to(norm.dtype)


def _device(tensors: Sequence[Tensor]) -> torch.device:
    return tensors[0].device if tensors else torch.device("cpu")
