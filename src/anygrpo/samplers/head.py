"""Log-probs of given tokens from hidden states, a block of rows at a time: logits [N, V] never exist whole.

Backward computes each block's logits again. Gradients with z the restricted
logits (see `support.restrict`), p = softmax(z), l = log p, and incoming g, a, b for the three outputs:

    d/dz = g (onehot - p)  -  a p (l + H)  +  b p (l - l_ref - KL)

which is then chained through the temperature and the soft cap c tanh(z / c) of the logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from anygrpo.samplers.base import Support
from anygrpo.samplers.fused import logits as fused
from anygrpo.samplers.fused.trial import HALF
from anygrpo.samplers.support import restrict

BLOCK = 512
"""Rows whose logits exist at once: 512 x 49k float32 is 100 MB."""

FUSED_BLOCK = 1024
"""The same where the kernels keep one copy of them, and not five."""


@dataclass(frozen=True)
class Head:
    """The output layer of a model: logits = cap(scale * (hidden @ weight.T + bias)).

    Attributes:
        weight: [V, H]; bias: [V] or None.
        cap: soft cap of the logits (c tanh(z / c)) or None.
        scale: constant factor of the logits.
        precise: logits in float32 from bfloat16 hidden states.
    """

    weight: Tensor
    bias: Tensor | None = None
    cap: float | None = None
    scale: float = 1.0
    precise: bool = False

    def logits(self, hidden: Tensor) -> Tensor:
        """[n, V] raw logits, without gradient bookkeeping of our own."""
        z = _project(hidden, self.weight, self.precise)
        if self.bias is not None:
            z = z + self.bias
        if self.scale != 1.0:
            z = z * self.scale
        return z if self.cap is None else torch.tanh(z / self.cap) * self.cap


def _project(x: Tensor, weight: Tensor, precise: bool) -> Tensor:
    """x [n, H] times weight [V, H] transposed."""
    if not precise or x.dtype == torch.float32:
        return F.linear(x, weight.to(x.dtype))
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
        entropy, kl, lse = torch.zeros_like(lp), torch.zeros_like(lp), torch.zeros_like(lp)
        ctx.fused = _fusible(hidden, head, o)
        for s in _blocks(n, ctx.fused):
            if ctx.fused:
                lp[s], lse[s], entropy[s] = fused.normalise(
                    head.logits(hidden[s]), targets[s], 1 / o.support.temperature
                )
                continue
            log_p = _log_softmax_block(hidden[s], head, o, targets[s], decision[s])
            lp[s] = log_p.gather(1, targets[s, None])[:, 0]
            if o.entropy or o.reference is not None:
                p, finite = log_p.exp(), log_p.masked_fill(log_p == float("-inf"), 0.0)
                if o.entropy:
                    entropy[s] = -(p * finite).sum(1)
                if o.reference is not None:
                    kl[s] = (p * (finite - _reference_block(log_p, ref_hidden[s], o))).sum(1)
        ctx.save_for_backward(hidden, weight, bias, targets, decision, ref_hidden, entropy, kl, lse)
        ctx.options = o
        return lp, entropy, kl

    @staticmethod
    def backward(ctx: Any, g: Tensor, a: Tensor, b: Tensor):
        hidden, weight, bias = ctx.saved_tensors[:3]
        o: _Options = ctx.options
        need_h, need_w, need_b = ctx.needs_input_grad[:3]
        dh = torch.empty_like(hidden) if need_h else None
        exact = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        dw = torch.zeros_like(weight, dtype=exact) if need_w else None
        db = torch.zeros_like(bias, dtype=exact) if need_b and bias is not None else None
        for s in _blocks(hidden.shape[0], ctx.fused):
            dz = (_fused_grad if ctx.fused else _plain_grad)(ctx, g[s], a[s], b[s], s)
            wide = dz if o.precise and not hidden.is_cuda else dz.to(hidden.dtype)
            if dh is not None:
                dh[s] = (wide @ weight.to(wide.dtype)).to(hidden.dtype)
            if dw is not None:
                _add_outer(dw, wide, hidden[s].to(wide.dtype))
            if db is not None:
                db += dz.sum(0, dtype=exact)
        return dh, None if dw is None else dw.to(weight.dtype), db, None, None, None, None


def _blocks(rows: int, fused: bool) -> list[slice]:
    size = FUSED_BLOCK if fused else BLOCK
    return [slice(start, start + size) for start in range(0, rows, size)]


def _fusible(hidden: Tensor, head: Head, o: _Options) -> bool:
    """Whether logits are used as they are, but for the temperature, where the kernels run."""
    plain = o.support.whole and o.reference is None and head.cap is None and head.precise
    return plain and hidden.dtype in HALF and fused.works(hidden)


def _fused_grad(ctx: Any, g: Tensor, a: Tensor, b: Tensor, s: slice) -> Tensor:
    """Gradient [n, V] of the raw logits of a block, in the hidden states' type."""
    hidden, weight, bias, targets, _, _, entropy, _, lse = ctx.saved_tensors
    o: _Options = ctx.options
    z = Head(weight, bias, o.cap, o.scale, o.precise).logits(hidden[s])
    given = (z, targets[s], lse[s], entropy[s] if o.entropy else None, g, a)
    return fused.grad_logits(*given, 1 / o.support.temperature, o.scale, hidden.dtype)


def _plain_grad(ctx: Any, g: Tensor, a: Tensor, b: Tensor, s: slice) -> Tensor:
    hidden, weight, bias, targets, decision, ref_hidden, entropy, kl, _ = ctx.saved_tensors
    o: _Options = ctx.options
    head = Head(weight, bias, o.cap, o.scale, o.precise)
    log_p = _log_softmax_block(hidden[s], head, o, targets[s], decision[s])
    dz = _grad_logits(log_p, g, a, b, targets[s], entropy[s], kl[s], ref_hidden, s, o)
    dz = dz.mul_(o.scale / o.support.temperature)
    return dz if o.cap is None else dz * (1 - (head.logits(hidden[s]).to(dz.dtype) / o.cap) ** 2)


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


def _add_outer(total: Tensor, dz: Tensor, h: Tensor) -> None:
    """total [V, H] += dz.T @ h, in place and in the total's type."""
    if dz.dtype == total.dtype:
        total.addmm_(dz.t(), h)
    elif dz.is_cuda:
        torch.addmm(total, dz.t(), h, out_dtype=total.dtype, out=total)
    else:
        total += dz.t() @ h


def head_of(model: Any, precise: bool) -> Head:
    """The output layer of a Hugging Face model, with the factors that its config names."""
    layer, config = model.get_output_embeddings(), model.config.get_text_config()
    scale = getattr(config, "logit_scale", None) or 1.0 / (getattr(config, "logits_scaling", None) or 1.0)
    return Head(layer.weight, layer.bias, getattr(config, "final_logit_softcapping", None), scale, precise)
