"""A picture of any size through a network: gates decided once for all of it, then tile by tile, overlaps blended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, OneHotCategorical

from anygrpo.gates.choosing import Drawing
from anygrpo.gates.distributions import base_of, middle
from anygrpo.gates.policy import StochasticPolicy
from anygrpo.gates.sites import Choose

TILE, OVERLAP = 512, 64
WHOLE = 2**21
"""Pixels up to which gates are decided from the whole picture in one pass; beyond, from the mean over its tiles."""


class Decided:
    """Values of the sites that say something of the whole picture. A map's values belong to places: each tile chooses
    its own.

    Attributes:
        values: site -> [1, ...].
    """

    def __init__(self, values: dict[str, Tensor], otherwise: Choose) -> None:
        self.values, self.otherwise = values, otherwise

    def __call__(self, name: str, distribution: Distribution) -> Tensor:
        shape = distribution.batch_shape + distribution.event_shape
        value = self.values.get(name)
        return value if value is not None and value.shape == shape else self.otherwise(name, distribution)


@torch.no_grad()
def decide(policy: StochasticPolicy, x: Tensor, drawn: bool, tile: int = TILE) -> Decided:
    """The gates of the picture `x` [1, 3, H, W]: at the policy's mode, or drawn from torch's random state."""
    choose: Choose = Drawing() if drawn else lambda name, d: middle(d, policy.mode)
    if x.shape[-1] * x.shape[-2] <= max(WHOLE, tile * tile):
        return Decided(policy.run([x], choose)[1].values(), choose)
    parts: dict[str, list[Tensor]] = {}
    made: dict[str, Distribution] = {}
    for y, z in places(x.shape[-2], x.shape[-1], tile, 0):
        one = x[..., y : y + tile, z : z + tile]
        for name, site in policy.run([one], lambda name, d: choose(name, d))[1].sites.items():
            parts.setdefault(name, []).append(site.value if drawn else middle(site.distribution, "mean"))
            made[name] = site.distribution
    return Decided({name: _agreed(values, made[name], policy.mode, drawn) for name, values in parts.items()}, choose)


def _agreed(values: list[Tensor], distribution: Distribution, mode: str, drawn: bool) -> Tensor:
    """One value for all tiles: drawn, that of the first; else the mean, or for a choice by mode the likeliest."""
    if drawn or len({x.shape for x in values}) > 1 or not values[0].is_floating_point():
        return values[0]
    mean = torch.stack(values).mean(0)
    if mode == "mode" and isinstance(base_of(distribution), OneHotCategorical):
        return torch.zeros_like(mean).scatter_(-1, mean.argmax(-1, keepdim=True), 1.0)
    return mean


@torch.no_grad()
def restore(policy: StochasticPolicy, x: Tensor, decided: Decided, tile: int = TILE, overlap: int = OVERLAP) -> Tensor:
    """`x` [1, 3, H, W] through the network, [1, c, s H, s W].

    Where two tiles meet, a quarter of the overlap at each inner border counts nothing and the half between them is a
    ramp: what a network computes from no farther than that quarter is the same as for the whole picture.
    """
    h, w = x.shape[-2:]
    spots = list(places(h, w, tile, overlap))
    if len(spots) == 1:
        return policy.run([x], decided)[0]
    total: Any = None
    counts: Any = None
    for y, z in spots:
        part = policy.run([x[..., y : y + tile, z : z + tile]], decided)[0]
        scale = part.shape[-1] // min(tile, w)
        weight = ramp(y, min(tile, h), h, overlap, scale)[:, None] * ramp(z, min(tile, w), w, overlap, scale)
        if total is None:
            total = part.new_zeros(*part.shape[:-2], scale * h, scale * w)
            counts = part.new_zeros(scale * h, scale * w)
        place = (..., slice(scale * y, scale * y + part.shape[-2]), slice(scale * z, scale * z + part.shape[-1]))
        weight = weight.to(part.device)
        total[place] += part * weight
        counts[place[1:]] += weight
    return total / counts


def places(height: int, width: int, tile: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Corners of tiles that cover a picture; the last ones are moved back inside."""
    for y in starts(height, tile, overlap):
        for x in starts(width, tile, overlap):
            yield y, x


def starts(length: int, tile: int, overlap: int) -> list[int]:
    if length <= tile:
        return [0]
    return [*range(0, length - tile, tile - overlap), length - tile]


def ramp(start: int, size: int, length: int, overlap: int, scale: int = 1) -> Tensor:
    """[scale x size]: 0 for a quarter of the overlap, up to 1 over half of it, at borders inside of the picture."""
    size, overlap = scale * size, scale * overlap
    at = torch.arange(size) + 0.5
    rise = lambda distance: ((distance - overlap / 4) / (overlap / 2)).clamp(0, 1)  # noqa: E731
    weight = torch.ones(size)
    if start > 0:
        weight = weight * rise(at)
    if scale * start + size < scale * length:
        weight = weight * rise(size - at)
    return weight
