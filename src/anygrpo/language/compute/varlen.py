"""Shared-prompt attention in two or three calls of variable-length flash attention, for half precision on a GPU.

One call for all that attends causally to its own past, prompts and rows alike: they lie end to end in the packed
sequence. One for the rows of each group and its prompt; one more where all prompts share an opening. The kernel itself
knows query heads that share a key head, so nothing is gathered row by row or repeated, and little is launched: what a
small model's pass on a GPU waits for.
"""

# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from anygrpo.language.compute.layout import Layout, Spans

_aten = torch.ops.aten


class Kernel(Protocol):
    """Attention of sequences laid end to end: q [N, H, D], k and v [M, KV, D], normalisers [H, N]."""

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, spans: Spans, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]: ...

    def backward(
        self, g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, spans: Spans, causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]: ...  # fmt: skip


class Flash:
    """torch's flash attention; what its public `varlen_attn` calls, whose normaliser has no gradient."""

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, spans: Spans, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        lengths = (spans.q, spans.k, spans.longest_q, spans.longest_k)
        out, lse, *_ = _aten._flash_attention_forward(q, k, v, *lengths, 0.0, causal, False, scale=scale)
        return out, lse

    def backward(
        self, g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, spans: Spans, causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        lengths = (spans.q, spans.k, spans.longest_q, spans.longest_k)
        seed = torch.empty(2, dtype=torch.uint64, device=q.device)  # of dropout, which is off
        unused = torch.empty(0, dtype=torch.uint64, device=q.device)
        return _aten._flash_attention_backward(
            g, q, k, v, out, lse.contiguous(), *lengths, 0.0, causal, seed, unused, scale=scale
        )


FLASH = Flash()


def fits(q: Tensor) -> bool:
    """Whether the kernel takes queries of this kind."""
    return q.is_cuda and q.dtype in (torch.bfloat16, torch.float16) and q.shape[-1] % 8 == 0 and q.shape[-1] <= 256


def varlen_attention(q: Tensor, k: Tensor, v: Tensor, layout: Layout, scale: float, kernel: Kernel = FLASH) -> Tensor:
    """[N, H, D] from q [N, H, D] and k, v [N, KV, D] of a packed sequence, H a multiple of KV."""
    return _Varlen.apply(q, k, v, layout, scale, kernel)


def _joined(layout: Layout) -> list[tuple[slice, slice, Spans]]:
    """(queries, keys, spans) of each part beside a token's own past: its prompt, and what all prompts begin with."""
    parts = [(layout.row_tokens, layout.prompt_tokens, layout.cross)] if layout.cross.longest_q else []
    if layout.opening:
        parts.append((slice(layout.opening, layout.tokens), slice(0, layout.opening), layout.whole))
    return parts


class _Varlen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, layout: Layout, scale: float, kernel: Kernel) -> Tensor:
        out, lse = kernel.forward(q, k, v, layout.own, True, scale)
        for rows, prompts, spans in _joined(layout):
            o, l = kernel.forward(q[rows], k[prompts], v[prompts], spans, False, scale)  # noqa: E741
            own = lse[:, rows]
            both = torch.logaddexp(l, own)
            share = (own - both).exp_().t()[..., None]
            out[rows] = torch.lerp(o.to(share), out[rows].to(share), share).to(out.dtype)
            lse[:, rows] = both
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.layout, ctx.scale, ctx.kernel = layout, scale, kernel
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        layout, scale, kernel = ctx.layout, ctx.scale, ctx.kernel
        grad = grad.contiguous()
        dq, dk, dv = kernel.backward(grad, q, k, v, out, lse, layout.own, True, scale)
        for rows, prompts, spans in _joined(layout):
            more = kernel.backward(
                grad[rows], q[rows], k[prompts], v[prompts], out[rows], lse[:, rows], spans, False, scale
            )
            for total, at, part in zip((dq, dk, dv), (rows, prompts, prompts), more):
                total[at] += part
        return dq, dk, dv, None, None, None
