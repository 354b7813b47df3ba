"""One definition of the sampled distribution, used where tokens are drawn and where they are scored."""

# pyright: reportOptionalSubscript=false

from __future__ import annotations

import math

import torch
from torch import Tensor

from anygrpo.language.generation import Support
from anygrpo.language.kernels import logits as fused

NEVER = float("-inf")

SPAN = 256
"""Tokens whose mass is summed together in drawing."""


def restrict(logits: Tensor, support: Support, decision: Tensor, keep: Tensor | None = None) -> Tensor:
    """Logits [n, V] float32 of the sampled distribution: divided by the temperature, -inf outside the support.

    Args:
        logits: [n, V] raw logits, any float type.
        decision: [n] index of the decision in its completion (for `min_new_tokens`).
        keep: [n] token ids that stay possible whatever the cuts say: the taken tokens, when scoring weights that
            have moved since. Without it a token just outside the new support would have log-prob -inf.
    """
    z = logits if logits.dtype == torch.float64 else logits.float()
    if support.temperature != 1.0:
        z = z / support.temperature
    if support.whole:
        return z
    kept = None if keep is None else z.gather(1, keep[:, None])
    if support.min_new_tokens and support.eos_ids:
        early = decision < support.min_new_tokens
        z = z.clone() if z.data_ptr() == logits.data_ptr() else z
        for end in support.eos_ids:
            z[:, end] = z[:, end].masked_fill(early, NEVER)
    if support.never:
        ids = torch.arange(z.shape[1], device=z.device)  # no list of the host's: graphs are captured over this
        for token in support.never:
            z = z.masked_fill(ids == token, NEVER)
    if 0 < support.top_k < z.shape[1]:
        z = z.masked_fill(z < z.topk(support.top_k, dim=1).values[:, -1:], NEVER)
    if support.top_p < 1.0:
        z = _nucleus(z, support.top_p)
    if support.min_p > 0.0:
        z = z.masked_fill(z < z.amax(1, keepdim=True) + math.log(support.min_p), NEVER)
    return z if kept is None else z.scatter(1, keep[:, None], kept)


def _nucleus(z: Tensor, top_p: float) -> Tensor:
    """Drop tokens whose likelier ones already hold `top_p`. The likeliest always stays. Ties stay together."""
    ordered, _ = z.sort(dim=1, descending=True)
    before = ordered.softmax(1).cumsum(1) - ordered.softmax(1)
    count = (before < top_p).sum(1, keepdim=True)
    return z.masked_fill(z < ordered.gather(1, (count - 1).clamp(min=0)), NEVER)


def draw(z: Tensor, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
    """Tokens [n] from restricted logits z [n, V] by inversion of the cumulative distribution, and their log-probs [n].

    Args:
        uniform: [n] in [0, 1), one number a row, so that a row's tokens do not depend on which rows are beside it.
            None: the likeliest token.
    """
    size = math.gcd(z.shape[1], SPAN)
    if uniform is not None and fused.picks(z, size):
        return fused.pick(z, uniform, size)
    if uniform is None:
        token, top = z.argmax(1), z.amax(1, keepdim=True)
        total = (z - top).exp().sum(1)
    else:
        token, top, total = _inverted(z, uniform)
    log_prob = z.gather(1, token[:, None])[:, 0] - top[:, 0] - total.log()
    return token, log_prob


def _inverted(z: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The token [n] at which the running sum of exp(z - top) exceeds `uniform` of the whole; top [n, 1]; whole [n].

    In two stages, since a running sum over a whole vocabulary is the slowest part of drawing: over spans of tokens,
    then inside the span that was found.
    """
    size = math.gcd(z.shape[1], SPAN)
    spans = z.view(len(z), -1, size)
    if size > 1 and fused.sums_spans(z):
        peak, mass = fused.spans(z, size)
        top = peak.amax(1, keepdim=True)
        edges = (mass * (peak - top).exp()).cumsum(1)
    else:
        top = z.amax(1, keepdim=True)
        edges = (z - top).exp_().view(spans.shape).sum(2).cumsum(1)
    total = edges[:, -1]
    aim = _below(uniform * total, total)[:, None]
    last = lambda index, of: index.clamp(max=of.shape[1] - 1)  # NaN is found nowhere: `Generation` says so  # noqa: E731
    span = last(torch.searchsorted(edges, aim, right=True), edges)
    before = edges.gather(1, (span - 1).clamp(min=0)).masked_fill(span == 0, 0.0)
    inside = (spans.gather(1, span[:, :, None].expand(-1, -1, size))[:, 0] - top).exp_().cumsum(1)
    within = last(torch.searchsorted(inside, _below((aim - before)[:, 0], inside[:, -1])[:, None], right=True), inside)
    return (span * size + within)[:, 0], top, total


def _below(aim: Tensor, total: Tensor) -> Tensor:
    """`aim`, where rounding took it up to the total, just below it: there the last token with any mass is found."""
    return torch.minimum(aim, torch.nextafter(total, torch.zeros_like(total)))
