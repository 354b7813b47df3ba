"""Several processes that train one policy: how they are joined, and what each holds of a step.

Every rank samples its share of the step's prompts. Rewards and masks, which are small, are then gathered, so that
filters, advantages and metrics are computed from the whole step on every rank, by the code of a single process. Samples
stay where they were made; gradients are summed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from anygrpo.errors import ConfigError, TrainingError
from anygrpo.recipe.recipe import Recipe
from anygrpo.spoken import Text
from anygrpo.train.folder import RunFolder
from anygrpo.train.parallel import is_main, world_size

_PATIENCE = timedelta(hours=1)
"""Longest wait for another rank: sampling and evaluation may take that much longer elsewhere."""
_LOST = ("gloo", "NCCL", "Connection closed by peer", "Connection reset by peer", "Socket Timeout")


@contextmanager
def process_group() -> Iterator[None]:
    """Join the processes that torchrun started; in a plain start there are none to join.

    An exception leaves the group as it is: torchrun ends the other ranks.

    Raises:
        ConfigError: this machine has GPUs, but fewer than ranks.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(_own_gpu())
        dist.init_process_group("cpu:gloo,cuda:nccl", timeout=_PATIENCE)
    else:
        dist.init_process_group("gloo", timeout=_PATIENCE)
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not any(word in str(error) for word in _LOST):
            raise
        raise TrainingError(
            Text(
                f"rank {dist.get_rank()}: another rank is gone, or was silent for {_PATIENCE}: {str(error)[:200]}",
                f"进程 {dist.get_rank()}：另一个进程已消失，或沉默了 {_PATIENCE}：{str(error)[:200]}",
            ),
            Text(
                "see the first rank that ended above for the cause; then --resume, with any number of ranks",
                "原因见上面最先结束的进程；之后用 --resume，进程数任意",
            ),
        ) from error
    dist.destroy_process_group()


def _own_gpu() -> int:
    """The number of this rank's GPU: its number among the ranks of its machine."""
    here, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if here < there:
        return here
    raise ConfigError(
        Text(
            f"rank {here} of this machine has no GPU: it has {there}",
            f"本机的第 {here} 个进程没有 GPU：本机有 {there} 个",
        ),
        Text(
            f"--nproc-per-node {there}; or CUDA_VISIBLE_DEVICES= before torchrun: all ranks on the processor",
            f"请用 --nproc-per-node {there}；或在 torchrun 前加 CUDA_VISIBLE_DEVICES=：所有进程都用 CPU",
        ),
    )


class Follower(RunFolder):
    """The run folder as ranks other than the first see it: they read there and write nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def describe(self, recipe: Recipe) -> None:
        """Rank 0 does."""

    def keep_fingerprints(self, prints: dict[str, str]) -> None:
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
