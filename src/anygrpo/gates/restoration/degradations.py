"""Degradations of pictures [3, H, W] in [0, 1]: each a pure function of (picture, strength, generator).

=============== ======================= ==============================================================================
name            strength                what it is
=============== ======================= ==============================================================================
noise           sigma in /255           Gaussian, independent per pixel and channel
gaussian_blur   sigma in pixels         isotropic
motion_blur     length in pixels        a line of random direction, bilinear
jpeg            quality 1-95            encoded and decoded in memory, 4:2:0
rain            opacity of streaks      bright oblique streaks of one random direction, screened over the picture
haze            transmission t          J t + A (1 - t), A in [0.8, 1], t falling smoothly by up to 25% to a random side
low_light       gain                    gain x picture^gamma, gamma in [1.5, 2.5], with noise of sigma 0.02
=============== ======================= ==============================================================================

Bounds and usual ranges: `anygrpo.gates.restoration.settings.STRENGTHS`. The result is rounded to 8 bits, as any picture
that comes from a file.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from anygrpo.errors import ConfigError, suggestion
from anygrpo.spoken import Text


def uniform(low: float, high: float, g: Generator) -> float:
    """One number in [low, high)."""
    return low + (high - low) * float(torch.rand((), generator=g))


def filtered(x: Tensor, kernel: Tensor) -> Tensor:
    """Every channel of [c, H, W] convolved with an odd kernel [k, l], borders replicated."""
    k, n = kernel.shape
    weight = kernel.to(x.dtype).expand(x.shape[0], 1, k, n)
    return F.conv2d(F.pad(x[None], (n // 2, n // 2, k // 2, k // 2), mode="replicate"), weight, groups=x.shape[0])[0]


def line(length: float, angle: float) -> Tensor:
    """A normalised motion kernel: a line of `length` pixels at `angle` radians through the centre."""
    radius = math.ceil(length / 2)
    side = 2 * radius + 1
    kernel = np.zeros((side + 2, side + 2), np.float32)  # as a tensor each of some hundred sums costs ten times as much
    points = max(2, 4 * radius + 1)
    for t in torch.linspace(-length / 2, length / 2, points).tolist():
        y, x = 1 + radius + t * math.sin(angle), 1 + radius + t * math.cos(angle)
        y0, x0 = math.floor(y), math.floor(x)
        for dy, wy in ((0, y0 + 1 - y), (1, y - y0)):
            for dx, wx in ((0, x0 + 1 - x), (1, x - x0)):
                kernel[y0 + dy, x0 + dx] += wy * wx
    made = torch.from_numpy(kernel)
    return made / made.sum()


def noise(x: Tensor, strength: float, g: Generator) -> Tensor:
    return x + strength / 255 * torch.randn(x.shape, generator=g)


def gaussian_blur(x: Tensor, strength: float, g: Generator) -> Tensor:
    radius = math.ceil(3 * strength)
    at = torch.arange(-radius, radius + 1, dtype=x.dtype)
    row = torch.exp(-(at**2) / (2 * strength**2))
    row = row / row.sum()
    return filtered(filtered(x, row[None]), row[:, None])


def motion_blur(x: Tensor, strength: float, g: Generator) -> Tensor:
    return filtered(x, line(strength, uniform(0, math.pi, g)))


def jpeg(x: Tensor, strength: float, g: Generator) -> Tensor:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray((x.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()).save(
        file, "JPEG", quality=round(strength), subsampling=2
    )
    return torch.from_numpy(np.array(Image.open(file), dtype=np.float32) / 255).permute(2, 0, 1)


def rain(x: Tensor, strength: float, g: Generator) -> Tensor:
    h, w = x.shape[-2:]
    drops = (torch.rand(1, h, w, generator=g) < 0.015).float()
    slanted = line(uniform(9, 15, g), math.pi / 2 + uniform(-0.4, 0.4, g))
    streaks = (filtered(drops, slanted) * 8).clamp(0, 1) * strength
    return 1 - (1 - x) * (1 - streaks)


def haze(x: Tensor, strength: float, g: Generator) -> Tensor:
    h, w = x.shape[-2:]
    air, angle = uniform(0.8, 1.0, g), uniform(0, 2 * math.pi, g)
    y, z = torch.linspace(-0.5, 0.5, h)[:, None], torch.linspace(-0.5, 0.5, w)[None]
    far = 0.5 + (y * math.sin(angle) + z * math.cos(angle)) / math.sqrt(2)
    t = strength * (1 - 0.25 * far)
    return x * t + air * (1 - t)


def low_light(x: Tensor, strength: float, g: Generator) -> Tensor:
    return noise(strength * x ** uniform(1.5, 2.5, g), 255 * 0.02, g)


DEGRADATIONS: dict[str, Callable[[Tensor, float, Generator], Tensor]] = {
    f.__name__: f for f in (noise, gaussian_blur, motion_blur, jpeg, rain, haze, low_light)
}


def degrade(x: Tensor, name: str, strength: float, seed: int) -> Tensor:
    """Picture [3, H, W] in [0, 1] degraded, clipped and rounded to 8 bits; the same for the same arguments.

    Raises:
        ConfigError: no such degradation.
    """
    if name not in DEGRADATIONS:
        raise ConfigError(Text(f"no degradation {name!r}", f"没有名为 {name!r} 的退化"), suggestion(name, DEGRADATIONS))
    y = DEGRADATIONS[name](x, strength, torch.Generator().manual_seed(seed))
    return (y.clamp(0, 1) * 255).round() / 255


def reduced(x: Tensor, scale: int) -> Tensor:
    """[3, H, W] at 1 / scale of its size: bicubic, antialiased, clipped and rounded to 8 bits."""
    if scale == 1:
        return x
    size = [side // scale for side in x.shape[1:]]
    small = F.interpolate(x[None], size=size, mode="bicubic", antialias=True, align_corners=False)[0]
    return (small.clamp(0, 1) * 255).round() / 255


def enlarged(x: Tensor, scale: int) -> Tensor:
    """[3, H, W] at `scale` times its size (bicubic): what a small picture is compared as."""
    if scale == 1:
        return x
    return F.interpolate(x[None], scale_factor=scale, mode="bicubic", align_corners=False)[0].clamp(0, 1)


def turned(x: Tensor, way: int) -> Tensor:
    """[3, H, W] mirrored left to right (way & 1), top to bottom (2), and transposed (4): the eight ways of a square."""
    x = x.flip(2) if way & 1 else x
    x = x.flip(1) if way & 2 else x
    return x.transpose(1, 2).contiguous() if way & 4 else x
