"""Several processes that train one policy: how they are joined, and what each holds of a step.

Every rank samples its share of the step's prompts. Rewards and masks, which are small, are then gathered, so that
filters, advantages and metrics are computed from the whole step on every rank, by the code of a single process. Samples
stay where they were made; gradients are summed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from anygrpo.core.rollout import Rollout
from anygrpo.recipe.recipe import Recipe
from anygrpo.train.folder import RunFolder
from anygrpo.train.objective import Tally
from anygrpo.train.parallel import gather, is_main, local, rank, world_size

_PATIENCE = timedelta(hours=1)
"""Longest wait for another rank: sampling and evaluation may take that much longer elsewhere."""


@contextmanager
def process_group() -> Iterator[None]:
    """Join the processes that torchrun started; in a plain start there are none to join.

    An exception leaves the group as it is: torchrun ends the other ranks.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group("cpu:gloo,cuda:nccl", timeout=_PATIENCE)
    else:
        dist.init_process_group("gloo", timeout=_PATIENCE)
    yield
    dist.destroy_process_group()


class Follower(RunFolder):
    """The run folder as ranks other than the first see it: they read there and write nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def describe(self, recipe: Recipe) -> None:
        """Rank 0 does."""

    def write_samples(self, step: int, rows: list[dict[str, object]]) -> None:
        """Rank 0 writes its own."""

    def log(self, text: str) -> None:
        """Rank 0 does."""

    def log_invalid(self, step: int, reasons: dict[tuple[int, int], str]) -> None:
        """Rank 0 says its own."""

    def close(self) -> None:
        """Nothing is open."""


def folder_of(path: Path, resume: bool) -> RunFolder:
    """The run's folder: rank 0 owns it."""
    return RunFolder(path, resume=resume) if is_main() else Follower(path)


@torch.no_grad()
def same_weights(module: nn.Module) -> None:
    """Rank 0's trainable weights on all ranks."""
    if world_size() > 1:
        for p in module.parameters():
            if p.requires_grad:
                value = p.detach().clone()
                dist.broadcast(value, src=0)
                p.copy_(value)  # a change that torch counts: casts of the weights are made again by that


def rank_seed(seed: int) -> int:
    """A seed of this rank's own; rank 0 keeps the given one."""
    return (seed + rank() * 15_485_863) % (2**31 - 1)


def whole_of(rollout: Rollout) -> tuple[Rollout, int]:
    """(the step's groups of all ranks in rank order, index of this rank's first one).

    With several ranks the whole has no samples and no log-probs; its tensors are on this rank's device.
    """
    if world_size() == 1:
        return rollout, 0
    parts = gather(_light(rollout))
    filled = [p for p in parts if p.shape[0]] or parts[:1]
    whole = filled[0]
    for part in filled[1:]:
        whole = whole.joined(part)
    device = rollout.rewards.device
    moved = {name: getattr(whole, name).to(device) for name in ("log_probs", "mask", "rewards", "valid", "ended")}
    components = {name: x.to(device) for name, x in whole.components.items()}
    whole = replace(whole, **moved, components=components, info=joined_info(parts))
    return whole, sum(p.shape[0] for p in parts[: rank()])


def _light(rollout: Rollout) -> Rollout:
    """On the CPU, without samples; of the log-probs only their shape is kept."""
    cpu = {name: getattr(rollout, name).cpu() for name in ("mask", "rewards", "valid", "ended", "version")}
    components = {name: x.cpu() for name, x in rollout.components.items()}
    return replace(rollout, samples={}, log_probs=torch.zeros(()).expand(rollout.shape), components=components, **cpu)


def joined_info(parts: list[Rollout], seconds: Callable[[list[float]], float] = max) -> dict[str, float]:
    """Numbers about the sampling: largest of maxima, smallest of minima, means weighted by samples; of seconds the
    largest, or what `seconds` makes of them."""
    parts = [p for p in parts if p.shape[0]]
    out: dict[str, float] = {}
    for name in dict.fromkeys(name for p in parts for name in p.info):
        values = [(p.info[name], p.valid.numel()) for p in parts if name in p.info]
        numbers = [v for v, _ in values]
        if name.startswith("time/"):
            out[name] = seconds(numbers)
        elif name.endswith("max"):
            out[name] = max(numbers)
        elif name.endswith("min"):
            out[name] = min(numbers)
        else:
            out[name] = sum(v * n for v, n in values) / sum(n for _, n in values)
    return out


def tally_of_all(tally: Tally) -> Tally:
    """Sums and maxima over all ranks' blocks; ranks may have tallied different names."""
    if world_size() == 1:
        return tally
    total = Tally()
    for sums, maxima in gather((_plain(tally.sums), _plain(tally.maxima))):
        for name, value in sums.items():
            total.add(name, torch.tensor(value, dtype=torch.float64))
        for name, value in maxima.items():
            total.peak(name, torch.tensor(value, dtype=torch.float64))
    return total


def _plain(values: dict[str, Tensor]) -> dict[str, float]:
    if not values:
        return {}
    return dict(zip(values, torch.stack([local(v).reshape(()) for v in values.values()]).tolist()))
