"""A restorer in the shape of AdaIR (Cui et al., arXiv:2403.14614), written anew, without a gate of anygrpo's in it.

Encoder and decoder with attention over channels; between the decoder's levels a module splits the picture's spectrum by
a window whose two rates are a sigmoid of pooled features, rounds it to whole frequencies, and fuses both bands with
learnt strengths. `recipes/restoration/own_network.toml` names the rates as gates; no line here knows of it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ChannelAttention(nn.Module):
    """Attention between channels (as in Restormer): cost grows with the picture's size, not with its square."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.qkv = nn.Conv2d(width, 3 * width, 1)
        self.local = nn.Conv2d(3 * width, 3 * width, 3, padding=1, groups=3 * width)
        self.project_out = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        q, k, v = self.local(self.qkv(x)).reshape(n, 3, self.heads, c // self.heads, h * w).unbind(1)
        weights = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * self.temperature).softmax(-1)
        return self.project_out((weights @ v).reshape(n, c, h, w))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(1, width), nn.GroupNorm(1, width)
        self.attn = ChannelAttention(width, heads)
        self.ffn = nn.Sequential(nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.ffn(self.norm2(x))


class FrequencyBlock(nn.Module):
    """Splits the picture by a window of its spectrum and fuses what lies inside and outside into the features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rate_conv = nn.Sequential(
            nn.Conv2d(width, width // 2, 1), nn.GELU(), nn.Conv2d(width // 2, 2, 1), nn.Sigmoid()
        )
        self.embed = nn.Conv2d(3, width, 3, padding=1)
        self.low, self.high = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.para1 = nn.Parameter(torch.full((width, 1, 1), 0.1))
        self.para2 = nn.Parameter(torch.ones(width, 1, 1))

    def window(self, x: Tensor, rate: Tensor) -> Tensor:
        """Low frequencies of x [n, c, h, w]; a rate of 1 keeps half of the spectrum's side. Whole frequencies only."""
        h, w = x.shape[-2:]
        fy = torch.fft.fftfreq(h, device=x.device).abs()[None, :, None] * h
        fx = torch.fft.rfftfreq(w, device=x.device)[None, None, :] * w
        sides = (rate[:, :, 0, 0] * x.new_tensor([h / 4, w / 4])).round()
        mask = ((fy <= sides[:, :1, None]) & (fx <= sides[:, 1:, None])).to(x.dtype)
        return torch.fft.irfft2(torch.fft.rfft2(x.float()) * mask[:, None].float(), s=(h, w)).to(x.dtype)

    def forward(self, picture: Tensor, y: Tensor) -> Tensor:
        x = self.embed(F.interpolate(picture, size=y.shape[-2:], mode="bilinear", align_corners=False))
        low = self.window(x, self.rate_conv(F.adaptive_avg_pool2d(y, 1)))
        fused = self.low(low) + self.high(x - low)
        return fused * self.para1 + y * self.para2


class AdaIRShaped(nn.Module):
    """Degraded [n, 3, H, W] in [0, 1] -> restored; H and W must be multiples of 4 (policy.multiple = 4 pads)."""

    def __init__(self, width: int = 24, blocks: tuple[int, int, int] = (1, 1, 2)) -> None:
        super().__init__()
        widths = (width, 2 * width, 4 * width)
        stack = lambda i: nn.Sequential(*[Block(widths[i], 2**i) for _ in range(blocks[i])])  # noqa: E731
        self.patch_embed = nn.Conv2d(3, width, 3, padding=1)
        self.encoders = nn.ModuleList([stack(i) for i in range(3)])
        self.downs = nn.ModuleList([nn.Conv2d(widths[i], widths[i + 1], 2, stride=2) for i in range(2)])
        self.fre1, self.fre2, self.fre3 = (FrequencyBlock(widths[i]) for i in (2, 1, 0))
        self.ups = nn.ModuleList([nn.Conv2d(widths[i + 1], 4 * widths[i], 1) for i in range(2)])
        self.joins = nn.ModuleList([nn.Conv2d(2 * widths[i], widths[i], 1) for i in range(2)])
        self.decoders = nn.ModuleList([stack(i) for i in range(2)])
        self.output = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, degraded: Tensor) -> Tensor:
        y, skips = self.patch_embed(degraded), []
        for i in range(2):
            y = self.encoders[i](y)
            skips.append(y)
            y = self.downs[i](y)
        y = self.fre1(degraded, self.encoders[2](y))
        for i, module in ((1, self.fre2), (0, self.fre3)):
            y = torch.cat([F.pixel_shuffle(self.ups[i](y), 2), skips[i]], 1)
            y = self.decoders[i](module(degraded, self.joins[i](y)))
        return degraded + self.output(y)


def make(width: int = 24, blocks: tuple[int, int, int] = (1, 1, 2)) -> nn.Module:
    """What a recipe's policy.function names."""
    return AdaIRShaped(width, tuple(blocks))
