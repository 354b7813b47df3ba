"""An all-in-one restorer in the manner of AdaIR (Cui et al., arXiv:2403.14614), small enough to train on a CPU.

What is taken from it: an encoder-decoder, and in three places of the decoder a module that splits the *degraded
picture* into low and high frequencies by a window whose size the network chooses, and fuses both bands into the
features. What is ours: the window's rates and the fusion strengths are Beta gates; fusion by convolution in place of
attention; the last module's bands also make up the output directly (restored = strengths x bands + residual + one
offset per colour), so its gates say what they do: how much of which band is kept.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anygrpo.gates.restorer.heads import BetaHead, pooled, statistics

SKIPPED = {"features": (0, 1), "bands": (1,), "none": ()}
"""Levels whose encoder's features are added to the decoder's, by `skip`."""
EDGE_WIDTH = 0.03
"""Width of the soft window's edge, in cycles per pixel."""


def split_bands(image: Tensor, rates: Tensor, window: str) -> tuple[Tensor, Tensor]:
    """Low and high band of pictures [n, c, H, W] by a rectangle of rates [n, 2] (vertical, horizontal).

    A rate of 1 keeps everything up to half a cycle per pixel, 0 only the mean. "hard": whole frequencies are in or
    out, so no derivative reaches the rates (as in AdaIR, which rounds the window's side). "soft": a sigmoid edge.
    """
    h, w = image.shape[-2:]
    fy = torch.fft.fftfreq(h, device=image.device).abs()[None, :, None]
    fx = torch.fft.rfftfreq(w, device=image.device)[None, None, :]
    gap_y, gap_x = rates[:, 0, None, None] / 2 - fy, rates[:, 1, None, None] / 2 - fx
    if window == "hard":
        mask = ((gap_y >= 0) & (gap_x >= 0)).to(image.dtype)
    else:
        mask = torch.sigmoid(gap_y / EDGE_WIDTH) * torch.sigmoid(gap_x / EDGE_WIDTH)
    low = torch.fft.irfft2(torch.fft.rfft2(image) * mask[:, None], s=(h, w))
    return low, image - low


class Block(nn.Module):
    """A residual block: 3x3, GELU, 3x3, the last one small at the start."""

    def __init__(self, width: int) -> None:
        super().__init__()
        conv = lambda: nn.Conv2d(width, width, 3, padding=1)  # noqa: E731
        first, last = conv(), conv()
        self.body = nn.Sequential(first, nn.GELU(), last)
        with torch.no_grad():
            last.weight.mul_(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class FrequencyModule(nn.Module):
    """Splits the picture by gated rates and adds both bands, by gated strengths, to the features.

    Args:
        name: prefix of its two sites, "NAME/rate" (2 values) and "NAME/fusion".
        width: channels of the features.
        window: "hard" or "soft".
        fusion: "scalar" (2 values: low, high) or "channel" (2 x width).
        concentration: of the gates at the start.
        detached: gate heads read features without gradient.
    """

    def __init__(self, name: str, width: int, window: str, fusion: str, concentration: float, detached: bool) -> None:
        super().__init__()
        self.window, self.per_band = window, width if fusion == "channel" else 1
        self.rate = BetaHead(f"{name}/rate", width, 2, concentration, detached)
        self.fusion = BetaHead(f"{name}/fusion", width, 2 * self.per_band, concentration, detached)
        self.low = nn.Sequential(nn.Conv2d(width + 3, width, 3, padding=1), nn.GELU(), nn.Conv2d(width, width, 1))
        self.high = nn.Sequential(nn.Conv2d(width + 3, width, 3, padding=1), nn.GELU(), nn.Conv2d(width, width, 1))

    def forward(self, y: Tensor, image: Tensor, told: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features [n, C, h, w], the picture at that size, its statistics -> fused features and two weighted bands.

        A strength is 4 gate^2: 1 at the middle and up to 4, so a band can be strengthened as well as damped.
        """
        low, high = split_bands(image, self.rate(y, told), self.window)
        strength = 4 * self.fusion(y, told)[..., None, None] ** 2
        s_low, s_high = strength[:, : self.per_band], strength[:, self.per_band :]
        y = y + s_low * self.low(torch.cat([y, low], 1)) + s_high * self.high(torch.cat([y, high], 1))
        return y, s_low.mean(1, keepdim=True) * low, s_high.mean(1, keepdim=True) * high


class FrequencyRestorer(nn.Module):
    """Degraded [n, 3, H, W] in [0, 1] -> restored [n, 3, H, W]; six sites, so T = 6.

    Args:
        width: channels at full resolution (2x and 4x below).
        blocks: residual blocks per level.
        window, fusion, concentration, detached: see `FrequencyModule`.
        skip: "features": the encoder's features reach half and full resolution. "bands": only the two bands reach full
            resolution, so the window decides which detail is treated as signal. "none": nor do they reach half of it.
    """

    def __init__(
        self,
        width: int = 16,
        blocks: int = 1,
        window: str = "hard",
        fusion: str = "scalar",
        concentration: float = 10.0,
        detached: bool = True,
        skip: str = "features",
    ) -> None:
        super().__init__()
        self.skipped = SKIPPED[skip]
        stack = lambda w: nn.Sequential(*[Block(w) for _ in range(blocks)])  # noqa: E731
        widths = (width, 2 * width, 4 * width)
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.encoders = nn.ModuleList([stack(w) for w in widths])
        self.downs = nn.ModuleList([nn.Conv2d(w, 2 * w, 2, stride=2) for w in widths[:2]])
        self.ups = nn.ModuleList([nn.Conv2d(2 * w, 4 * w, 1) for w in widths[:2]])
        self.decoders = nn.ModuleList([stack(w) for w in widths[:2]])
        self.modulators = nn.ModuleList(
            [FrequencyModule(f"level{i}", w, window, fusion, concentration, detached) for i, w in enumerate(widths)]
        )
        self.out = nn.Conv2d(width, 3, 3, padding=1)
        self.offset = nn.Linear(8 * width, 3)
        for parameter in (*self.out.parameters(), *self.offset.parameters()):
            nn.init.zeros_(parameter)

    def forward(self, degraded: Tensor) -> Tensor:
        h, w = degraded.shape[-2:]
        x = F.pad(degraded, (0, -w % 4, 0, -h % 4), mode="replicate") if h % 4 or w % 4 else degraded
        y, skips, told = self.stem(x), [], statistics(x)
        for i, down in enumerate(self.downs):
            y = self.encoders[i](y)
            skips.append(y)
            y = down(y)
        y, low, high = self.modulators[2](self.encoders[2](y), F.avg_pool2d(x, 4), told)
        offset = self.offset(pooled(y))[..., None, None]
        for i in (1, 0):
            y = F.pixel_shuffle(self.ups[i](y), 2)
            if i in self.skipped:
                y = y + skips[i]
            y, low, high = self.modulators[i](y, F.avg_pool2d(x, 2**i) if i else x, told)
            y = self.decoders[i](y)
        return (low + high + self.out(y) + offset)[..., :h, :w]
