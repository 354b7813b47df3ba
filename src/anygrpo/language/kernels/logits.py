"""Log-probs, normalisers, entropies and sums over spans from logits in one reading; their gradient in one more."""

# pyright: reportIndexIssue=false

from __future__ import annotations

import functools

import torch
from torch import Tensor

from anygrpo.language.kernels.native import calls, library
from anygrpo.language.kernels.trial import agrees, usable

BLOCK = 4096
"""Logits that a program reads at once."""


LANES = 8192
"""Spans of a row that one program holds."""


def works(z: Tensor) -> bool:
    """Whether the kernels run on the logits' device and agree with torch there."""
    return z.is_cuda and usable(z) and _tried(z.device, z.dtype)


def sums_spans(z: Tensor) -> bool:
    """The same of `spans` alone, which is there for a CPU too."""
    return z.dtype == torch.float32 and (works(z) or (library.usable(z) and _spans_tried()))


def normalise(z: Tensor, targets: Tensor, factor: float) -> tuple[Tensor, Tensor, Tensor]:
    """(log-prob of the target, log-normaliser, entropy), each [n] float32, of softmax(factor * z).

    Args:
        z: [n, V] logits, rows contiguous. targets: [n] int64.
    """
    from anygrpo.language.kernels.triton import pointwise as kernels

    made = [torch.empty(len(z), dtype=torch.float32, device=z.device) for _ in range(3)]
    if len(z):
        kernels.normalise[(len(z),)](z, targets, *made, factor, z.stride(0), z.shape[1], BLOCK=BLOCK)
    return made[0], made[1], made[2]


def grad_logits(
    z: Tensor,
    targets: Tensor,
    lse: Tensor,
    entropy: Tensor | None,
    g: Tensor,
    a: Tensor,
    factor: float,
    scale: float,
    out: torch.dtype,
) -> Tensor:
    """scale * d/dz [n, V] of sum_n g log p(target) + a H, with p = softmax(factor * z), in type `out`.

    Args:
        lse, entropy: as from `normalise`; entropy None: a is not looked at. g, a: [n] float32.
        scale: the factor by which z itself came from raw logits.
    """
    from anygrpo.language.kernels.triton import pointwise as kernels

    made = torch.empty(z.shape, dtype=out, device=z.device)
    if len(z):
        kernels.grad_logits[(len(z), -(-z.shape[1] // BLOCK))](
            z, targets, lse, lse if entropy is None else entropy, g.contiguous(), a.contiguous(), made, factor,
            factor * scale, z.stride(0), z.shape[1], ENTROPY=entropy is not None, BLOCK=BLOCK,
        )  # fmt: skip
    return made


def spans(z: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The largest, and the sum of exp(logit - largest), of each span of `size` logits: [n, V / size] float32 each.

    Args:
        z: [n, V] float32, rows contiguous. size: a power of two that divides V.
    """
    if library.usable(z):
        return calls.spans(z.contiguous(), size)
    from anygrpo.language.kernels.triton import pointwise as kernels

    count, tile = z.shape[1] // size, max(1, BLOCK // size)
    peak, mass = (torch.empty(len(z), count, dtype=torch.float32, device=z.device) for _ in range(2))
    if len(z):
        kernels.spans[(len(z), -(-count // tile))](z, peak, mass, z.stride(0), count, SIZE=size, TILE=tile)
    return peak, mass


def picks(z: Tensor, size: int) -> bool:
    """Whether `pick` takes logits of this kind, and agrees with torch on their device."""
    usual = z.is_cuda and z.dtype == torch.float32 and size >= 16 and z.shape[1] // size <= LANES
    return usual and usable(z) and _pick_tried(z.device)


def pick(z: Tensor, uniform: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Tokens [n] at which the running sum of exp(z) exceeds `uniform` [n] of the whole, and their log-probs [n]: two
    launches for some twenty.

    Args:
        z: [n, V] float32, rows contiguous. size: a power of two that divides V.
    """
    from anygrpo.language.kernels.triton import pointwise as kernels

    peak, mass = spans(z, size)
    token = torch.empty(len(z), dtype=torch.long, device=z.device)
    log_prob = torch.empty(len(z), dtype=torch.float32, device=z.device)
    if len(z):
        lanes = kernels.power_of_two(peak.shape[1])
        kernels.pick[(len(z),)](
            z, peak, mass, uniform.contiguous(), token, log_prob, z.stride(0), peak.shape[1], SIZE=size, LANES=lanes
        )
    return token, log_prob


@functools.cache
def _pick_tried(device: torch.device) -> bool:
    generator = torch.Generator().manual_seed(0)
    z, u = torch.randn(64, 4096, generator=generator), torch.rand(64, generator=generator)
    edges = z.double().softmax(1).cumsum(1)
    token = torch.searchsorted(edges, u.double()[:, None], right=True)[:, 0].clamp(max=z.shape[1] - 1)
    # Where a sum rounds across an edge the neighbour is as right; of 64 draws from 4,096 none comes near.
    given = (z.to(device), u.to(device), 256)
    wanted = [token.to(device).float(), z.log_softmax(1).gather(1, token[:, None])[:, 0].to(device)]
    return agrees("drawing", lambda: [pick(*given)[0].float(), pick(*given)[1]], lambda: wanted)


@functools.cache
def _spans_tried() -> bool:
    z = torch.randn(3, 5120, generator=torch.Generator().manual_seed(0)).mul_(9)
    parts = z.view(3, -1, 256)
    return agrees("sums over spans", lambda: spans(z, 256), lambda: [parts.amax(2), _mass(parts)])


def _mass(parts: Tensor) -> Tensor:
    return (parts - parts.amax(2, keepdim=True)).exp().sum(2)


@functools.cache
def _tried(device: torch.device, dtype: torch.dtype) -> bool:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(3, 5000, generator=generator).to(device, dtype)
    targets = torch.tensor([0, 4999, 7], device=device)
    g, a = torch.randn(2, 3, generator=generator).to(device)

    def fused() -> list[Tensor]:
        log_prob, lse, entropy = normalise(z, targets, 0.7)
        peak, mass = spans(z, 8)
        back = grad_logits(z, targets, lse, entropy, g, a, 0.7, 1.0, torch.float32)
        return [log_prob, entropy, back, peak + mass.log()]

    def plain() -> list[Tensor]:
        with torch.enable_grad():
            x = z.float().requires_grad_()
            log_p = torch.log_softmax(0.7 * x, 1)
            log_prob, entropy = log_p.gather(1, targets[:, None])[:, 0], -(log_p.exp() * log_p).sum(1)
            back = torch.autograd.grad((g * log_prob + a * entropy).sum(), x)[0]
        return [log_prob.detach(), entropy.detach(), back, z.float().view(3, -1, 8).logsumexp(2)]

    return agrees("log-probs", fused, plain)
