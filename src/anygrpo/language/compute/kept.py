"""Log-probs of a block from its logits, with the exponentials kept, so that backward computes no logits again.

They take the logits' place in memory and their type; what needs float32 goes through it some rows at a time, which also
stay in a processor's cache meanwhile (or entry by entry, in a compiled kernel).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from anygrpo.language.kernels.native import calls, library
from anygrpo.language.kernels.trial import agrees

ROWS = 32
"""Rows that are wide at once: 32 x 49k float32 is 6 MB."""


@dataclass(frozen=True)
class Kept:
    """What backward needs of a block of n rows.

    Attributes:
        exponentials: [n, V] exp(z - max z) in the type of the logits.
        total: [n] their sums. log_probs, entropy: [n], as they came out.
    """

    exponentials: Tensor
    total: Tensor
    log_probs: Tensor
    entropy: Tensor


def normalise(z: Tensor, targets: Tensor, temperature: float, entropy: bool) -> Kept:
    """Log-probs of `targets` [n] under raw logits z [n, V], which are overwritten; the entropy where asked for."""
    if library.usable(z) and z.is_contiguous() and _tried(z.dtype):
        lp, total, h = calls.normalise(z, targets, 1 / temperature)
        return Kept(z, total, lp, h if entropy else torch.zeros_like(h))
    return _normalise(z, targets, temperature, entropy)


def _normalise(z: Tensor, targets: Tensor, temperature: float, entropy: bool) -> Kept:
    kind = torch.float64 if z.dtype == torch.float64 else torch.float32
    lp, total, h = (torch.zeros(len(z), dtype=kind, device=z.device) for _ in range(3))
    for s in _slices(len(z)):
        x = z[s].to(kind)
        if temperature != 1.0:
            x /= temperature
        x -= x.amax(1, keepdim=True)
        chosen = x.gather(1, targets[s, None])[:, 0]
        p = x.exp() if entropy else x.exp_()
        total[s] = p.sum(1)
        norm = total[s].log()
        lp[s] = chosen - norm
        if entropy:
            x.clamp_(min=-1e4)  # a logit of -inf has no mass and adds nothing, but 0 x -inf is no number
            h[s] = norm - torch.bmm(p[:, None], x[:, :, None])[:, 0, 0] / total[s]
        z[s] = p
    return Kept(z, total, lp, h)


def grad_logits(kept: Kept, targets: Tensor, g: Tensor, a: Tensor | None, chain: float) -> Tensor:
    """Gradient [n, V] of the raw logits, in the exponentials' type.

    Args:
        g, a: [n] gradients of the log-probs and of the entropy (None: of nothing).
        chain: derivative of the scaled logits with respect to the raw ones.
    """
    if a is None and library.usable(kept.exponentials) and _tried(kept.exponentials.dtype):
        dz = calls.grad_logits(kept.exponentials, kept.total, g, chain)
    else:
        dz = _grad_logits(kept, g, a, chain)
    # Of the target itself 1 - p remains, which a rounded p would spoil where the policy is sure.
    p = kept.log_probs.exp()
    exact = g * (1 - p)
    if a is not None:
        exact = exact - a * p * (kept.log_probs + kept.entropy)
    return dz.scatter_(1, targets[:, None], (chain * exact)[:, None].to(dz.dtype))


def _grad_logits(kept: Kept, g: Tensor, a: Tensor | None, chain: float) -> Tensor:
    """The same but for the targets' own."""
    dz = torch.empty_like(kept.exponentials)
    for s in _slices(len(dz)):
        p = kept.exponentials[s].to(g.dtype) / kept.total[s, None]
        out = p * (-chain * g[s])[:, None]
        if a is not None:
            out -= (chain * a[s])[:, None] * (torch.xlogy(p, p) + p * kept.entropy[s, None])
        dz[s] = out
    return dz


@functools.cache
def _tried(kind: torch.dtype) -> bool:
    generator = torch.Generator().manual_seed(0)
    z, targets, g = torch.randn(3, 999, generator=generator).mul_(5).to(kind), torch.tensor([0, 998, 7]), torch.ones(3)

    def ours() -> list[Tensor]:
        made = z.clone()
        lp, total, entropy = calls.normalise(made, targets, 0.7)
        return [lp, entropy, made, calls.grad_logits(made, total, g, 0.7)]

    def theirs() -> list[Tensor]:
        kept = _normalise(z.clone(), targets, 1 / 0.7, entropy=True)
        return [kept.log_probs, kept.entropy, kept.exponentials, _grad_logits(kept, g, None, 0.7)]

    return agrees("log-probs of a block", ours, theirs)


def _slices(n: int) -> Iterator[slice]:
    return (slice(start, start + ROWS) for start in range(0, n, ROWS))
