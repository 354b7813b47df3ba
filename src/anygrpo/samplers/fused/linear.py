"""Linear layers on a CPU for the few rows of a decode step, where the time is that of reading the weights."""

from __future__ import annotations

import functools
import types
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anygrpo.samplers.fused.trial import agrees
from anygrpo.samplers.native import calls, library

ROWS = 64
"""The library's product is as fast from about here on."""


def fuse_linears(model: nn.Module) -> int:
    """Give every plain linear layer a forward that knows few rows. Returns how many."""
    layers = [m for m in model.modules() if type(m) is nn.Linear]
    for layer in layers:
        layer.forward = types.MethodType(_forward, layer)  # type: ignore[method-assign]
    return len(layers)


def _forward(self: Any, x: Tensor) -> Tensor:
    return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., K] @ weight [N, K] transposed, + bias [N]."""
    if torch.is_grad_enabled() or not _few(x, weight):
        return F.linear(x, weight, bias)
    out = calls.thin(x, weight)
    return out if bias is None else out.add_(bias)


def _few(x: Tensor, weight: Tensor) -> bool:
    few = 0 < x.numel() <= ROWS * x.shape[-1] and x.dtype == weight.dtype == torch.float32
    return few and weight.is_contiguous() and library.usable(x) and _tried()


@functools.cache
def _tried() -> bool:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(37, 50, generator=generator), torch.randn(45, 50, generator=generator)
    return agrees("products of few rows", lambda: [calls.thin(x, weight)], lambda: [F.linear(x, weight)])
