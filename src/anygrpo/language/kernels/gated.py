"""Gated feed-forward blocks, down(silu(gate(x)) * up(x)), that keep less for backward.

The product and silu(gate) are made again in backward; on a GPU, where a small model waits for launches and not for
arithmetic, so are gate(x) and up(x), and the gate itself is one launch each way.
"""

# pyright: reportArgumentType=false, reportIncompatibleMethodOverride=false, reportIndexIssue=false

from __future__ import annotations

import functools
import types
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anygrpo.language.kernels.linear import turned, turns
from anygrpo.language.kernels.native import calls, library
from anygrpo.language.kernels.trial import agrees, usable

BLOCK = 2048
ROWS_BLOCK = 1024


def fuse_gates(model: nn.Module) -> int:
    """Give every block of `down_proj(silu(gate_proj(x)) * up_proj(x))` the functions below. Returns how many."""
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
    layers = (self.gate_proj, self.up_proj, self.down_proj)
    if torch.is_grad_enabled() and all(_bare(layer, x) for layer in layers):
        return _FeedForward.apply(x, *(layer.weight for layer in layers))
    if x.dtype == torch.bfloat16 and all(_bare(layer, x) and turns(x, layer.weight) for layer in layers):
        flat = x.reshape(-1, x.shape[-1]).t()
        return turned(self.down_proj.weight @ _product(self.gate_proj.weight @ flat, self.up_proj.weight @ flat), x)
    return self.down_proj(gated(self.gate_proj(x), self.up_proj(x)))


def _bare(layer: Any, x: Tensor) -> bool:
    """A plain linear layer: no bias, no adapter, nobody watching."""
    watched = getattr(layer, "_forward_hooks", None) or getattr(layer, "_forward_pre_hooks", None)
    return type(layer) is nn.Linear and layer.bias is None and layer.weight.dtype == x.dtype and not watched


def gated(a: Tensor, b: Tensor) -> Tensor:
    """silu(a) * b, of any one shape."""
    if not usable(a) or a.dtype != b.dtype or not _tried(a.device, a.dtype):
        return F.silu(a) * b
    if torch.is_grad_enabled():
        return _Gate.apply(a, b)
    if a.is_cuda and not (a.is_contiguous() and b.is_contiguous()) and a.stride(-1) == b.stride(-1) == 1:
        return _launch_rows(a, b)
    return _launch(a.contiguous(), b.contiguous())


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        a, b = a.contiguous(), b.contiguous()
        ctx.save_for_backward(a, b)
        return _launch(a, b)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        _, da, db = _launch_gradients(g.clone(memory_format=torch.contiguous_format), a, b)
        return da, db


class _FeedForward(torch.autograd.Function):
    """The whole block. Saves x and the weights, and on a CPU gate(x) and up(x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        flat, ctx.shape = x.reshape(-1, x.shape[-1]), x.shape
        a, b = flat @ gate.t(), flat @ up.t()
        ctx.save_for_backward(flat, gate, up, down, *([] if x.is_cuda else [a, b]))
        return (_product(a, b) @ down.t()).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        flat, gate, up, down, *kept = ctx.saved_tensors
        a, b = kept or (flat @ gate.t(), flat @ up.t())
        need_x, need_gate, need_up, need_down = ctx.needs_input_grad
        g = g.reshape(-1, g.shape[-1])
        product, da, db = _gradients(g @ down, a, b)
        return (
            (da @ gate).addmm_(db, up).view(ctx.shape) if need_x else None,
            da.t() @ flat if need_gate else None,
            db.t() @ flat if need_up else None,
            g.t() @ product if need_down else None,
        )


def _product(a: Tensor, b: Tensor) -> Tensor:
    """silu(a) * b, without a graph."""
    return _launch(a, b) if usable(a) and _tried(a.device, a.dtype) else F.silu(a).mul_(b)


def _gradients(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(silu(a) b, and the gradients of a and b from its gradient g, which is overwritten)."""
    if usable(a) and _tried(a.device, a.dtype):
        return _launch_gradients(g, a, b)
    s = F.silu(a)
    product = s * b
    db = s.mul_(g)
    return product, torch.ops.aten.silu_backward(g.mul_(b), a), db


def _launch(a: Tensor, b: Tensor) -> Tensor:
    if library.usable(a):
        return calls.gate(a, b)
    from anygrpo.language.kernels.triton import pointwise as kernels

    out = torch.empty_like(a)
    kernels.gate[(-(-a.numel() // BLOCK),)](a, b, out, a.numel(), BLOCK=BLOCK)
    return out


def _launch_rows(a: Tensor, b: Tensor) -> Tensor:
    """The same of a, b [..., F] whose rows lie evenly apart, as halves of one product do."""
    from anygrpo.language.kernels.triton import pointwise as kernels

    out = torch.empty(a.shape, dtype=a.dtype, device=a.device)
    rows, width = a.numel() // a.shape[-1], a.shape[-1]
    kernels.gate_rows[(rows, -(-width // ROWS_BLOCK))](a, b, out, a.stride(-2), b.stride(-2), width, BLOCK=ROWS_BLOCK)
    return out


def _launch_gradients(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if library.usable(a):
        return calls.gate_grad(g, a, b)
    from anygrpo.language.kernels.triton import pointwise as kernels

    product, da, db = torch.empty_like(a), torch.empty_like(a), torch.empty_like(b)
    kernels.gate_grad[(-(-a.numel() // BLOCK),)](g, a, b, product, da, db, a.numel(), BLOCK=BLOCK)
    return product, da, db


@functools.cache
def _tried(device: torch.device, dtype: torch.dtype) -> bool:
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(3, 1000, generator=generator).to(device, dtype) for _ in range(3)]
    a, b, g = (x.float() for x in given)
    s = a.sigmoid()
    plain = [a * s * b, a * s * b, g * b * s * (1 + a * (1 - s)), g * a * s]
    return agrees(
        "gated feed-forward blocks",
        lambda: [_launch(*given[:2]), *_launch_gradients(given[2].clone(), *given[:2])],
        lambda: [x.to(dtype) for x in plain],
    )
