"""Whether a fused kernel may be used: where it runs (Triton on a GPU, compiled ones on a CPU), and where a trial gives
what the plain computation gives."""

from __future__ import annotations

import functools
import importlib.util
import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from anygrpo.language.kernels.native import library

log = logging.getLogger("anygrpo")

FAR = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
"""Largest difference to the plain result, relative to its largest entry (1 at least)."""

HALF = (torch.bfloat16, torch.float16)


def usable(x: Tensor) -> bool:
    """Whether kernels run on this tensor's device."""
    return _installed() if x.is_cuda else library.usable(x)


@functools.cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def agrees(what: str, fused: Callable[[], Sequence[Tensor]], plain: Callable[[], Sequence[Tensor]]) -> bool:
    """Run both once and compare; False, said once in the log, where the kernel fails or differs.

    A kernel may fail to compile for many reasons (no compiler, a card too old): any of them only means the slower path.
    """
    try:
        problem = _difference(fused(), plain())
    except Exception as error:
        problem = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
    if problem:
        log.warning("the fused kernel for %s is not used: %s", what, problem)
    return not problem


def _difference(made: Sequence[Tensor], expected: Sequence[Tensor]) -> str:
    for a, b in zip(made, expected, strict=True):
        far = float((a.double() - b.double()).abs().max() / b.double().abs().max().clamp(min=1.0))
        if not far <= FAR.get(b.dtype, 1e-5):
            return f"its trial differs by {far:.1e}"
    return ""
