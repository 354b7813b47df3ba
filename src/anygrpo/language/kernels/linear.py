"""Linear layers on a CPU for the few rows of a decode step, where the time is that of reading the weights."""

from __future__ import annotations

import functools
import types
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anygrpo.language.kernels.native import calls, library
from anygrpo.language.kernels.trial import agrees

ROWS = {torch.float32: 64, torch.bfloat16: 32}
"""Of more rows the library's product is as fast."""


def fuse_linears(model: nn.Module) -> int:
    """Give every plain linear layer a forward that knows few rows. Returns how many."""
    layers = [m for m in model.modules() if type(m) is nn.Linear]
    for layer in layers:
        layer.forward = types.MethodType(_forward, layer)
    return len(layers)


def _forward(self: Any, x: Tensor) -> Tensor:
    return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., K] @ weight [N, K] transposed, + bias [N]."""
    if turns(x, weight):
        out = turned(weight @ x.reshape(-1, x.shape[-1]).t(), x)
    elif _few(x, weight) and library.usable(x) and _tried():
        out = calls.thin(x, weight)
    else:
        return F.linear(x, weight, bias)
    return out if bias is None else out.add_(bias)


def turns(x: Tensor, weight: Tensor) -> bool:
    """Whether weight [N, K] @ x.T [K, R], which is `turned` afterwards, is the faster product.

    oneDNN takes bfloat16 weights on the left side as they lie; those on the right it lays out anew at each call (32 x
    576 @ 576 x 1536: 235 us for 318)."""
    return x.dtype == torch.bfloat16 and _few(x, weight)


def turned(y: Tensor, x: Tensor) -> Tensor:
    """[..., N], contiguous, from [N, R], for the rows of x [..., K]."""
    return y.t().contiguous().view(*x.shape[:-1], len(y))


def _few(x: Tensor, weight: Tensor) -> bool:
    few = x.device.type == "cpu" and 0 < x.numel() <= ROWS.get(x.dtype, 0) * x.shape[-1]
    return few and x.dtype == weight.dtype and weight.is_contiguous() and not torch.is_grad_enabled()


@functools.cache
def _tried() -> bool:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(37, 50, generator=generator), torch.randn(45, 50, generator=generator)
    return agrees("products of few rows", lambda: [calls.thin(x, weight)], lambda: [F.linear(x, weight)])
