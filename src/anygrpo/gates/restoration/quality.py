"""PSNR and SSIM per picture, the reward made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

Measure = Callable[[Tensor, Tensor], Tensor]
"""(restored [n, 3, H, W], clean [n, 3, H, W]) -> [n], higher is better."""


def psnr(x: Tensor, y: Tensor) -> Tensor:
    """[n] dB per picture; inf where the pictures are equal (torchmetrics pools the batch unless told otherwise)."""
    from torchmetrics.functional.image import peak_signal_noise_ratio as measure

    return measure(x, y, data_range=1.0, reduction="none", dim=(1, 2, 3)).reshape(-1)


def ssim(x: Tensor, y: Tensor) -> Tensor:
    """[n] per picture: Gaussian window 11, sigma 1.5 (Wang et al. 2004)."""
    from torchmetrics.functional.image import structural_similarity_index_measure as measure

    return measure(x, y, data_range=1.0, reduction="none").reshape(-1)  # type: ignore[union-attr]


def as_saved(x: Tensor) -> Tensor:
    """Clipped to [0, 1] and rounded to 8 bits: what a file of the result would hold."""
    return (x.float().clamp(0, 1) * 255).round() / 255


def luma(x: Tensor) -> Tensor:
    """[n, 3, H, W] in [0, 1] -> [n, 1, H, W]: Y of ITU-R BT.601, 16/255 for black to 235/255 for white."""
    red, green, blue = x.unbind(1)
    return ((65.481 * red + 128.553 * green + 24.966 * blue + 16) / 255)[:, None]


@dataclass(frozen=True)
class Quality:
    """reward = w_psnr (PSNR - low) / (high - low) + w_ssim SSIM + sum of plug-ins; PSNR held inside [low, high].

    Attributes:
        w_psnr, w_ssim: weights.
        low, high: dB mapped to 0 and 1.
        plugins: name -> (weight, measure).
        channel: "rgb", or "y": PSNR and SSIM of luma.
        shave: pixels that they leave out at each border.
        lower_is_better: names of plug-ins whose measure is the negative of what papers report.
    """

    w_psnr: float
    w_ssim: float
    low: float
    high: float
    plugins: dict[str, tuple[float, Measure]]
    channel: str = "rgb"
    shave: int = 0
    lower_is_better: frozenset[str] = field(default_factory=frozenset[str])

    def measures(self, restored: Tensor, clean: Tensor, everything: bool = False) -> dict[str, Tensor]:
        """Every term before weighting, each [n]: "psnr" in dB, "ssim", plug-ins; with `everything` also those of weight
        0, which are reported only (some need larger pictures than training's crops)."""
        restored = as_saved(restored)
        x, y = (self._compared(z) for z in (restored, clean))
        values = {"psnr": psnr(x, y), "ssim": ssim(x, y)}
        wanted = {name: f for name, (weight, f) in self.plugins.items() if weight or everything}
        return values | {name: f(restored, clean).reshape(-1).float() for name, f in wanted.items()}

    def _compared(self, x: Tensor) -> Tensor:
        x = luma(x) if self.channel == "y" else x
        s = self.shave
        return x[..., s : x.shape[-2] - s, s : x.shape[-1] - s]

    def reward(self, values: dict[str, Tensor]) -> Tensor:
        """[n] from what `measures` returned."""
        scaled = (values["psnr"].clamp(self.low, self.high) - self.low) / (self.high - self.low)
        total = self.w_psnr * scaled + self.w_ssim * values["ssim"]
        for name, (weight, _) in self.plugins.items():
            if weight:
                total = total + weight * values[name]
        return total

    def outside(self, values: dict[str, Tensor]) -> Tensor:
        """[n] bool: PSNR beyond the range, where its term no longer says better or worse."""
        return (values["psnr"] < self.low) | (values["psnr"] > self.high)

    def reported(self, name: str, value: float) -> float:
        """A plug-in's value with the sign that papers give it."""
        return -value if name in self.lower_is_better else value
