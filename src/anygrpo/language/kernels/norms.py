"""RMS norms that keep their input alone for backward: one kernel on a GPU, where the library's modules launch six; on a
CPU one compiled pass each way (688 x 576, both ways: .35 ms), or without a compiler a function of few passes (2.2 ms in
bfloat16 and 1.5 in float32), for the library's 2.7."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anygrpo.language.kernels.native import calls, library

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
"""Largest difference to the module's own result, relative to the largest entry. The fused kernel multiplies by the
weight before it rounds, so in bfloat16 it is the nearer one."""


def _plain(self: Any, x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], self.weight, self._fused_eps)


def _shifted(self: Any, x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], 1.0 + self.weight, self._fused_eps)


def _on_cpu(self: Any, x: Tensor) -> Tensor:
    if not torch.is_grad_enabled() and _compiled(x, self.weight):
        return calls.norm(x, self.weight, self._fused_eps)[0]
    return _Norm.apply(x, self.weight, self._fused_eps)


class _Norm(torch.autograd.Function):
    """weight * (x / rms(x)), the quotient in float32 and rounded to the type of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        if _compiled(x, weight):
            out, scale = calls.norm(x, weight, eps)
            ctx.save_for_backward(x, weight, scale[..., None])
            return out
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        scale = size.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        return (x * scale).to(x.dtype) * weight

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # type: ignore[override]
        x, weight, scale = ctx.saved_tensors
        need_x, need_weight, _ = ctx.needs_input_grad
        if need_x and _compiled(x, weight):
            dx, dw = calls.norm_grad(g.contiguous(), x, weight, scale)
            return dx, dw.to(weight.dtype) if need_weight else None, None
        unit = x * scale
        dw = (g * unit.to(x.dtype)).flatten(0, -2).sum(0).to(weight.dtype) if need_weight else None
        if not need_x:
            return None, dw, None
        back = (g * weight).float()
        along = (back * unit).mean(-1, keepdim=True)
        return back.sub_(unit.mul_(along)).mul_(scale).to(x.dtype), dw, None


def _compiled(x: Tensor, weight: Tensor) -> bool:
    return x.is_contiguous() and weight.dtype == x.dtype and library.usable(x)


def fuse_norms(model: nn.Module) -> int:
    """Give every RMS norm that one of the usual formulas reproduces that formula. Returns how many.

    The weight is read at each call, so weights that are bound or refreshed later are seen.
    """
    count = 0
    for module in model.modules():
        eps = _epsilon(module)
        if not type(module).__name__.endswith("RMSNorm") or getattr(module, "weight", None) is None or eps is None:
            continue
        module._fused_eps = eps  # type: ignore[assignment]
        formula = _formula(module)
        if formula is not None:
            module.forward = types.MethodType(formula, module)
            count += 1
    return count


@torch.no_grad()
def _formula(module: Any) -> Callable[[Any, Tensor], Tensor] | None:
    """The one that gives what the module gives, tried with a weight made up: its own may not be there yet."""
    held, generator = module.weight, torch.Generator().manual_seed(0)
    x, weight = (torch.randn(n, *held.shape, generator=generator).to(held) for n in (4, 1))
    module.weight = nn.Parameter(weight[0], requires_grad=False)
    try:
        expected = module(x)
        far = TOLERANCE.get(x.dtype, 0.0) * expected.abs().max()
        for formula in (_plain, _shifted) if x.is_cuda else (_on_cpu,):
            if (formula(module, x) - expected).abs().max() <= far:
                return formula
    finally:
        module._parameters["weight"] = held
    return None


def _epsilon(module: nn.Module) -> float | None:
    for name in ("variance_epsilon", "eps"):
        value = getattr(module, name, None)
        if isinstance(value, float):
            return value
    return None
