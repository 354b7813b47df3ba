"""What this machine does best: the faster float32 matrix product, bfloat16 or not, the number of threads.

Measured once a process in about a second, because no table of processors is right for long.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

ROWS, INNER, OUTER = 384, 576, 1536
"""Size of the trial product: that of a small model's MLP on a training block."""

LARGEST_ERROR = 5e-6
"""Of a float32 product, relative to its largest entry. True float32 gives 5e-7, a product in bfloat16 gives 4e-3."""

GAIN = 1.15
"""A way other than the default is taken only where it is this much faster."""


@dataclass(frozen=True)
class Trial:
    """One way to multiply. rate in GFLOP/s (CPU seconds on one thread); error relative to the largest entry."""

    rate: float
    error: float


def multiply(dtype: torch.dtype, precision: str | None = None, repeats: int = 12) -> Trial:
    """Time `ROWS x INNER @ INNER x OUTER` on one thread.

    Args:
        precision: value of torch.backends.mkldnn.matmul.fp32_precision while measuring; None leaves it.
    """
    settings = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before, threads = settings.fp32_precision, torch.get_num_threads()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, INNER, generator=generator).to(dtype)
    w = torch.randn(OUTER, INNER, generator=generator).to(dtype)
    try:
        torch.set_num_threads(1)
        if precision is not None:
            settings.fp32_precision = precision
        y = torch.nn.functional.linear(x, w)
        seconds = min(_cpu_seconds(x, w) for _ in range(repeats))
    finally:
        settings.fp32_precision = before
        torch.set_num_threads(threads)
    exact = x.double() @ w.double().t()
    error = ((y.double() - exact).abs().max() / exact.abs().max()).item()
    return Trial(2e-9 * ROWS * INNER * OUTER / seconds, error)


def _cpu_seconds(x: torch.Tensor, w: torch.Tensor) -> float:
    start = time.process_time()
    torch.nn.functional.linear(x, w)
    return max(time.process_time() - start, 1e-6)


@lru_cache(maxsize=1)
def float32_precision() -> str:
    """The setting of oneDNN's float32 product that is fastest here *and* still float32 by its error.

    On processors with AVX512-BF16 and no AMX, "bf16" moves float32 products from a slow path to oneDNN without any
    rounding; with AMX it would round, which the error shows, and it is not taken.
    """
    default = torch.backends.mkldnn.matmul.fp32_precision  # type: ignore[attr-defined]
    base = multiply(torch.float32, default)
    other = multiply(torch.float32, "bf16")
    return "bf16" if other.error < LARGEST_ERROR and other.rate > GAIN * base.rate else default


def keep_freed_memory() -> bool:
    """Tell glibc to keep what is freed for the next allocation, instead of handing large blocks back to the system.

    Gradients of whole weights are made anew in each training block; without this every page of them is faulted in again
    (a block of SmolLM2 in bfloat16: 5.7 CPU seconds, with it 4.3, when casts were made anew too; a training pass now 5
    to 15% longer without). Only glibc has the setting.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    mmap_max, trim_threshold = -4, -1  # the settings' numbers in malloc.h
    return bool(mallopt(mmap_max, 0)) and bool(mallopt(trim_threshold, -1))


@lru_cache(maxsize=1)
def bfloat16_is_faster() -> bool:
    """Does this processor multiply bfloat16 faster than float32 at its best?"""
    return multiply(torch.bfloat16).rate > GAIN * multiply(torch.float32, float32_precision()).rate


@lru_cache(maxsize=1)
def best_threads() -> int:
    """Threads with the shortest wall time for the trial product. OMP_NUM_THREADS, where set, is obeyed.

    On a busy machine two threads that wait for each other are slower than one.
    """
    if given := os.environ.get("OMP_NUM_THREADS"):
        return max(1, int(given.split(",")[0]))
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    counts = sorted({1, 2, 4, most // 2, most} & set(range(1, most + 1)))
    return min(counts, key=_wall_seconds)


def of_a_child() -> dict[str, str]:
    """The environment of a process of our own that computes: as many threads as here, or fewer where fewer are faster.
    torch would take every core, and on a busy machine of many cores they wait for each other without end."""
    return {**os.environ, "OMP_NUM_THREADS": str(min(torch.get_num_threads(), best_threads()))}


def _wall_seconds(threads: int) -> float:
    """Median wall seconds of a dozen trial products."""
    before = torch.get_num_threads()
    x, w = torch.randn(ROWS, INNER), torch.randn(OUTER, INNER)
    times = []
    try:
        torch.set_num_threads(threads)
        for _ in range(12):
            start = time.perf_counter()
            torch.nn.functional.linear(x, w)
            times.append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(before)
    return sorted(times)[len(times) // 2]


def device_of(name: str) -> torch.device:
    """The device of a recipe; "auto": the first GPU where there is one.

    Raises:
        ConfigError: not a device, or not one of this machine.
    """
    name = ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(
            Text(
                f"device = {name!r} cannot be used: {str(error).splitlines()[0][:120]}",
                f"device = {name!r} 不可用：{str(error).splitlines()[0][:120]}",
            ),
            Text(
                f'this machine has cpu and {torch.cuda.device_count()} of cuda; "auto" takes what is there',
                f'本机有 cpu 和 {torch.cuda.device_count()} 个 cuda；"auto" 使用现有的设备',
            ),
        ) from None
    return device


def float32_as_it_is(dtype: str) -> None:
    """For a policy in float32: from here on this process convolves in float32 on a GPU too. cuDNN's default rounds what
    it convolves to TF32 (10 bits of fraction), in another order for another number of rows: a sample, scored again,
    then differs by more than the clip range of a large latent is wide. Matrix products are torch's, not rounded."""
    if dtype == "float32":
        torch.backends.cudnn.allow_tf32 = False


@contextmanager
def exactly() -> Iterator[None]:
    """Inside, float32 products and convolutions are float32's own on a GPU too: what is computed on another device, or
    in another process, can be compared with them."""
    cudnn: Any = torch.backends.cudnn
    every: tuple[Any, ...] = (cudnn.conv, cudnn.rnn, torch.backends.cuda.matmul)
    before = [one.fp32_precision for one in every]
    try:
        for one in every:
            one.fp32_precision = "ieee"
        yield
    finally:
        for one, precision in zip(every, before):
            one.fp32_precision = precision


def rounded(module: nn.Module) -> bool:
    """Whether float32 products or convolutions of a module are rounded to TF32 where its weights lie."""
    cudnn: Any = torch.backends.cudnn
    if not any(p.is_cuda for p in module.parameters()):
        return False
    convolves = any(isinstance(layer, _ConvNd) for layer in module.modules())
    kinds: tuple[Any, ...] = (torch.backends.cuda.matmul, *([cudnn.conv] if convolves else []))
    return any(kind.fp32_precision == "tf32" for kind in kinds)


def prepare(device: str, dtype: str, threads: int | str) -> tuple[torch.device, torch.dtype]:
    """Settle device, type of the matrix products and threads, and set the process accordingly.

    Args:
        device: "auto" or any torch device. dtype: "auto", "float32" or "bfloat16". threads: "auto" or a number.

    Raises:
        ConfigError: see `device_of`.
    """
    chosen = device_of(device)
    if chosen.type == "cpu":
        torch.set_num_threads(best_threads() if threads == "auto" else int(threads))
        torch.backends.mkldnn.matmul.fp32_precision = float32_precision()  # type: ignore[attr-defined]
        auto = torch.bfloat16 if dtype == "auto" and bfloat16_is_faster() else torch.float32
    else:
        auto = torch.bfloat16 if chosen.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32
    settled = auto if dtype == "auto" else getattr(torch, dtype)
    float32_as_it_is(str(settled).removeprefix("torch."))
    return chosen, settled
