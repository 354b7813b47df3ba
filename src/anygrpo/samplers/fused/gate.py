"""silu(gate) * up of a feed-forward block in one launch, and both gradients in one; silu(gate) is not kept."""

from __future__ import annotations

import functools
import types
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anygrpo.samplers.fused.trial import agrees, usable

BLOCK = 2048


def fuse_gates(model: nn.Module) -> int:
    """Give every block of `down_proj(silu(gate_proj(x)) * up_proj(x))` the kernel. Returns how many."""
    count = 0
    for module in model.modules():
        if _gated(module):
            module.forward = types.MethodType(_forward, module)
            count += 1
    return count


def _gated(module: nn.Module) -> bool:
    parts = [getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj", "act_fn")]
    if any(part is None for part in parts) or not callable(parts[3]):
        return False
    names = type(module).forward.__code__.co_names
    # The same names in another order of calls would be another formula.
    usual = [name for name in names if name in ("down_proj", "act_fn", "gate_proj", "up_proj")]
    x = torch.linspace(-3, 3, 7)
    return usual == ["down_proj", "act_fn", "gate_proj", "up_proj"] and torch.equal(parts[3](x), F.silu(x))


def _forward(self: Any, x: Tensor) -> Tensor:
    a, b = self.gate_proj(x), self.up_proj(x)
    works = usable(a) and a.dtype == b.dtype and _tried(a.device, a.dtype)
    return self.down_proj(gated(a, b) if works else self.act_fn(a) * b)


def gated(a: Tensor, b: Tensor) -> Tensor:
    """silu(a) * b, of any one shape."""
    return _Gate.apply(a, b)


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        from anygrpo.samplers.fused import kernels

        a, b = a.contiguous(), b.contiguous()
        ctx.save_for_backward(a, b)
        out = torch.empty_like(a)
        kernels.gate[(-(-a.numel() // BLOCK),)](a, b, out, a.numel(), BLOCK=BLOCK)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        from anygrpo.samplers.fused import kernels

        a, b = ctx.saved_tensors
        da, db = torch.empty_like(a), torch.empty_like(b)
        kernels.gate_grad[(-(-a.numel() // BLOCK),)](g.contiguous(), a, b, da, db, a.numel(), BLOCK=BLOCK)
        return da, db


@functools.cache
def _tried(device: torch.device, dtype: torch.dtype) -> bool:
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(3, 1000, generator=generator).to(device, dtype) for _ in range(2)]

    def results(function: Any, kind: torch.dtype) -> list[Tensor]:
        with torch.enable_grad():
            inputs = [x.to(kind).requires_grad_() for x in given]
            out = function(*inputs)
            return [x.detach().to(dtype) for x in (out, *torch.autograd.grad(out.sum(), inputs))]

    plain = lambda: results(lambda a, b: F.silu(a) * b, torch.float32)  # noqa: E731
    return agrees("gated feed-forward blocks", lambda: results(gated, dtype), plain)
