"""Log-probs of given tokens from hidden states, a block of rows at a time: logits [N, V] never exist whole.

Backward computes each block's logits again, but for few rows, whose probabilities are kept. With z the restricted
logits (see `support.restrict`), p = softmax(z), l = log p, and incoming gradients g, a, b of the three outputs:

    d/dz = g (onehot - p)  -  a p (l + H)  +  b p (l - l_ref - KL)

which is then chained through the temperature and the soft cap c tanh(z / c) of the logits.
"""

# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from anygrpo.language.compute.kept import Kept, grad_logits, normalise
from anygrpo.language.compute.support import restrict
from anygrpo.language.generation import Support
from anygrpo.language.kernels import logits as fused
from anygrpo.language.kernels.linear import linear
from anygrpo.language.kernels.trial import HALF

BLOCK = 512
"""Rows whose logits exist at once: 512 x 49k float32 is 100 MB."""

GPU_BLOCK = 2048
"""The same on a GPU, where fewer products and sums of the head's gradient count (34,000 tokens, 152k words, H200: a
pass both ways in 328 ms for 340)."""

_WIDENED = 8192
"""Words whose gradients, of the head's weights, are widened together."""

KEPT = 2**28
"""Bytes of probabilities that are kept for backward, where that is all there is of them."""


@dataclass(frozen=True)
class Head:
    """The output layer of a model: logits = cap(scale * (hidden @ weight.T + bias)).

    Attributes:
        weight: [V, H], or None where hidden states are logits already; bias: [V] or None.
        cap: soft cap of the logits (c tanh(z / c)) or None.
        scale: constant factor of the logits.
        precise: logits in float32 from bfloat16 hidden states.
    """

    weight: Tensor | None
    bias: Tensor | None = None
    cap: float | None = None
    scale: float = 1.0
    precise: bool = False

    def logits(self, hidden: Tensor) -> Tensor:
        """[n, V] raw logits, without gradient bookkeeping of our own."""
        if self.weight is None:
            return hidden
        z = _project(hidden, self.weight, self.precise)
        if self.bias is not None:
            z = z + self.bias
        if self.scale != 1.0:
            z = z * self.scale
        return z if self.cap is None else torch.tanh(z / self.cap) * self.cap


def _project(x: Tensor, weight: Tensor, precise: bool) -> Tensor:
    """x [n, H] times weight [V, H] transposed."""
    if not precise or x.dtype == torch.float32:
        return linear(x, weight.to(x.dtype))
    if x.is_cuda:
        return torch.mm(x, weight.to(x.dtype).t(), out_dtype=torch.float32)
    return F.linear(x.float(), weight.float())


@dataclass(frozen=True)
class HeadScores:
    """log_probs [n]; entropy [n] and kl [n] where asked for."""

    log_probs: Tensor
    entropy: Tensor | None = None
    kl: Tensor | None = None


def score(
    hidden: Tensor,
    head: Head,
    targets: Tensor,
    support: Support,
    decision: Tensor,
    entropy: bool = False,
    reference: tuple[Tensor, Head] | None = None,
) -> HeadScores:
    """Log-probs, in float32 (float64 for float64 input), of `targets` under the sampled distribution.

    Args:
        hidden: [n, H] states that predict the targets.
        targets: [n] token ids.
        decision: [n] index of each target in its completion.
        entropy: also the exact entropy of each distribution.
        reference: hidden states [n, H] and head of the reference policy: also KL(policy || reference), exact over the
            support (of the policy; the reference is cut and renormalised to the same tokens).
    """
    ref_hidden, ref_head = reference if reference is not None else (None, None)
    options = _Options(head.cap, head.scale, head.precise, support, entropy, ref_head)
    lp, ent, kl = _BlockScores.apply(hidden, head.weight, head.bias, targets, decision, ref_hidden, options)
    return HeadScores(lp, ent if entropy else None, kl if reference is not None else None)


@dataclass(frozen=True)
class _Options:
    cap: float | None
    scale: float
    precise: bool
    support: Support
    entropy: bool
    reference: Head | None


def _log_softmax_block(h: Tensor, head: Head, o: _Options, targets: Tensor, decision: Tensor) -> Tensor:
    return torch.log_softmax(restrict(head.logits(h), o.support, decision, targets), dim=1)


def _reference_block(log_p: Tensor, h: Tensor, o: _Options) -> Tensor:
    """Log-probs [n, V] of the reference, cut to the policy's support; 0 outside it (weighed by p = 0)."""
    assert o.reference is not None
    z = o.reference.logits(h).to(log_p.dtype) / o.support.temperature
    inside = log_p > float("-inf")
    return torch.log_softmax(z.masked_fill(~inside, float("-inf")), 1).masked_fill(~inside, 0.0)


class _BlockScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden, weight, bias, targets, decision, ref_hidden, o: _Options):
        head = Head(weight, bias, o.cap, o.scale, o.precise)
        n, kind = hidden.shape[0], torch.float64 if hidden.dtype == torch.float64 else torch.float32
        lp = hidden.new_zeros(n, dtype=kind)
        entropy, kl, norm = torch.zeros_like(lp), torch.zeros_like(lp), torch.zeros_like(lp)
        ctx.way, kept = _way(hidden, head, o), []
        for s in _blocks(hidden):
            if ctx.way == "fused":
                lp[s], norm[s], entropy[s] = fused.normalise(
                    head.logits(hidden[s]), targets[s], 1 / o.support.temperature
                )
            elif ctx.way == "kept":
                made = normalise(head.logits(hidden[s]), targets[s], o.support.temperature, o.entropy)
                lp[s], norm[s], entropy[s] = made.log_probs, made.total, made.entropy
                kept.append(made.exponentials)
            else:
                lp[s], entropy[s], kl[s] = _whole(hidden[s], head, targets[s], decision[s], ref_hidden, s, o)
        ctx.save_for_backward(hidden, weight, bias, targets, decision, ref_hidden, entropy, kl, norm, lp, *kept)
        ctx.set_materialize_grads(False)
        ctx.options = o
        return lp, entropy, kl

    @staticmethod
    def backward(ctx: Any, *outer: Tensor | None):
        hidden, weight, bias = ctx.saved_tensors[:3]
        # An entropy that is only logged sends no gradient back: a is None then.
        g, a, b = (torch.zeros_like(ctx.saved_tensors[8]) if x is None and i != 1 else x for i, x in enumerate(outer))
        o: _Options = ctx.options
        need_h, need_w, need_b = ctx.needs_input_grad[:3]
        dh = torch.empty_like(hidden) if need_h else None
        exact = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        dw: Tensor | None = None
        db = torch.zeros_like(bias, dtype=exact) if need_b and bias is not None else None
        blocks = _blocks(hidden)
        for index, s in enumerate(blocks):
            dz = _GRADIENTS[ctx.way](ctx, index, s, g[s], None if a is None else a[s], b[s])
            half = dz.to(hidden.dtype)
            if dh is not None:
                dh[s] = half if weight is None else half @ weight.to(hidden.dtype)
            if need_w:
                # On a CPU the product of a narrow type rounds each block's sum; of a wide one it costs no more.
                wide = dz if o.precise and not hidden.is_cuda else half
                dw = _plus_outer(dw, wide, hidden[s].to(wide.dtype), exact if len(blocks) > 1 else wide.dtype)
            if db is not None:
                db += dz.sum(0, dtype=exact)
            dz = half = wide = None  # not beside the next block's
        return dh, None if dw is None else dw.to(weight.dtype), db, None, None, None, None


def _way(hidden: Tensor, head: Head, o: _Options) -> str:
    """How the blocks are computed: by kernels, with the probabilities kept, or in general."""
    bare = o.support.whole and o.reference is None and head.cap is None
    if head.weight is None:
        return "general"
    if bare and head.precise and hidden.dtype in HALF and fused.works(hidden):
        return "fused"
    size = hidden.element_size() if not head.precise else max(4, hidden.element_size())
    small = hidden.shape[0] * head.weight.shape[0] * size <= KEPT
    return "kept" if bare and small else "general"


def _blocks(hidden: Tensor) -> list[slice]:
    size = GPU_BLOCK if hidden.is_cuda else BLOCK
    return [slice(start, start + size) for start in range(0, len(hidden), size)]


def _whole(h, head: Head, targets, decision, ref_hidden, s: slice, o: _Options) -> tuple[Tensor, Tensor, Tensor]:
    """(log-prob, entropy, KL) of a block, the last two where they are asked for."""
    log_p = _log_softmax_block(h, head, o, targets, decision)
    lp = log_p.gather(1, targets[:, None])[:, 0]
    entropy = kl = torch.zeros_like(lp)
    if o.entropy or o.reference is not None:
        p, finite = log_p.exp(), log_p.masked_fill(log_p == float("-inf"), 0.0)
        if o.entropy:
            entropy = -(p * finite).sum(1)
        if o.reference is not None:
            kl = (p * (finite - _reference_block(log_p, ref_hidden[s], o))).sum(1)
    return lp, entropy, kl


def _fused_grad(ctx: Any, index: int, s: slice, g: Tensor, a: Tensor | None, b: Tensor) -> Tensor:
    """Gradient [n, V] of the raw logits of a block."""
    hidden, weight, bias, targets, _, _, entropy, _, lse, _ = ctx.saved_tensors
    o: _Options = ctx.options
    z = Head(weight, bias, o.cap, o.scale, o.precise).logits(hidden[s])
    given = (z, targets[s], lse[s], None if a is None else entropy[s], g, g if a is None else a)
    return fused.grad_logits(*given, 1 / o.support.temperature, o.scale, hidden.dtype)


def _kept_grad(ctx: Any, index: int, s: slice, g: Tensor, a: Tensor | None, b: Tensor) -> Tensor:
    """The same from the exponentials, which stay: a graph may be gone through twice."""
    o: _Options = ctx.options
    targets, entropy, total, lp = (ctx.saved_tensors[i][s] for i in (3, 6, 8, 9))
    kept = Kept(ctx.saved_tensors[10 + index], total, lp, entropy)
    return grad_logits(kept, targets, g, a, o.scale / o.support.temperature)


def _general_grad(ctx: Any, index: int, s: slice, g: Tensor, a: Tensor | None, b: Tensor) -> Tensor:
    a = torch.zeros_like(g) if a is None else a
    hidden, weight, bias, targets, decision, ref_hidden, entropy, kl, *_ = ctx.saved_tensors
    o: _Options = ctx.options
    head = Head(weight, bias, o.cap, o.scale, o.precise)
    log_p = _log_softmax_block(hidden[s], head, o, targets[s], decision[s])
    dz = _grad_logits(log_p, g, a, b, targets[s], entropy[s], kl[s], ref_hidden, s, o)
    dz = dz.mul_(o.scale / o.support.temperature)
    return dz if o.cap is None else dz * (1 - (head.logits(hidden[s]).to(dz.dtype) / o.cap) ** 2)


_GRADIENTS = {"fused": _fused_grad, "kept": _kept_grad, "general": _general_grad}


def _grad_logits(log_p, g, a, b, targets, entropy, kl, ref_hidden, s, o: _Options) -> Tensor:
    """The formula at the top, [n, V]; outside the support p is 0 and so is the gradient."""
    p = log_p.exp()
    dz = p * -g[:, None]
    if o.entropy or o.reference is not None:
        finite = log_p.masked_fill(log_p == float("-inf"), 0.0)
        if o.entropy:
            dz -= a[:, None] * p * (finite + entropy[:, None])
        if o.reference is not None:
            dz += b[:, None] * p * (finite - _reference_block(log_p, ref_hidden[s], o) - kl[:, None])
    return dz.scatter_add_(1, targets[:, None], g[:, None].to(dz.dtype))


def _plus_outer(total: Tensor | None, dz: Tensor, h: Tensor, dtype: torch.dtype) -> Tensor:
    """total [V, H] + dz.T @ h in `dtype`; a given total is changed in place."""
    if total is None and dz.dtype == dtype:
        return dz.t() @ h
    if total is None:
        total = torch.zeros(dz.shape[1], h.shape[1], dtype=dtype, device=h.device)
    if dz.dtype == dtype:
        return total.addmm_(dz.t(), h)
    if dz.is_cuda:
        return torch.addmm(total, dz.t(), h, out_dtype=dtype, out=total)
    for rows in torch.arange(dz.shape[1]).split(_WIDENED):  # a sum of two types is a copy of the narrow one
        total[rows[0] : rows[-1] + 1] += dz[:, rows[0] : rows[-1] + 1].t() @ h
    return total


LOGITS = Head(None)
"""The head of a model whose own forward is asked for logits."""
