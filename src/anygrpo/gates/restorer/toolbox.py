"""A restorer that chooses among fixed filters for every patch, in the manner of PixelRL (Furuta et al.,
arXiv:1811.04323): nothing but the choice is learnt, and the choice has no derivative."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import OneHotCategorical

from anygrpo.gates.restorer.heads import STATISTICS, statistics
from anygrpo.gates.sites import gate


def gaussian(x: Tensor, sigma: float) -> Tensor:
    """Gaussian blur of [n, c, H, W] with replicated borders."""
    radius = max(1, round(2.5 * sigma))
    at = torch.arange(-radius, radius + 1, dtype=x.dtype, device=x.device)
    kernel = torch.exp(-(at**2) / (2 * sigma**2))
    kernel = (kernel / kernel.sum()).expand(x.shape[1], 1, -1)
    x = F.pad(x, (radius,) * 4, mode="replicate")
    x = F.conv2d(x, kernel[:, :, :, None], groups=x.shape[1])
    return F.conv2d(x, kernel[:, :, None, :], groups=x.shape[1])


def median3(x: Tensor) -> Tensor:
    """Median of 3 x 3 with replicated borders, in element-wise minima and maxima.

    With rows sorted, it is the middle of the largest low, the middle middle and the smallest high (Smith 1996).
    """
    h, w = x.shape[-2:]
    x = F.pad(x, (1,) * 4, mode="replicate")
    low, middle, high = sorted3(x[..., :w], x[..., 1 : w + 1], x[..., 2:])
    rows = lambda z: (z[..., :h, :], z[..., 1 : h + 1, :], z[..., 2:, :])  # noqa: E731
    return sorted3(sorted3(*rows(low))[2], sorted3(*rows(middle))[1], sorted3(*rows(high))[0])[1]


def sorted3(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Element-wise smallest, middle and largest."""
    low, high = torch.minimum(a, b), torch.maximum(a, b)
    return torch.minimum(low, c), torch.maximum(low, torch.minimum(high, c)), torch.maximum(high, c)


def stretched(x: Tensor, veil: float) -> Tensor:
    """Removes a constant veil of airlight 1: (x - veil) / (1 - veil)."""
    return (x - veil) / (1 - veil)


TOOLS = {
    "keep": lambda x: x,
    "blur": lambda x: gaussian(x, 0.7),
    "blur_more": lambda x: gaussian(x, 1.5),
    "median": median3,
    "sharpen": lambda x: x + 0.8 * (x - gaussian(x, 1.0)),
    "brighten": lambda x: x.clamp(min=0.004) ** 0.7,
    "brighten_more": lambda x: x.clamp(min=0.004) ** 0.5,
    "gain": lambda x: 1.4 * x,
    "gain_more": lambda x: 2 * x,
    "darken": lambda x: x.clamp(min=0.004) ** 1.4,
    "unveil": lambda x: stretched(x, 0.2),
    "unveil_more": lambda x: stretched(x, 0.4),
}


class ToolboxRestorer(nn.Module):
    """Degraded [n, 3, H, W] -> restored, by `steps` rounds of one tool per patch; T = steps x patches.

    The mean of a choice is the mixture of all tools by probability (smooth, so supervision can train it); its mode is
    one tool. Set `deterministic = "mode"` to use hard choices after training.

    Args:
        width: channels of the small network that chooses.
        patch: side of a patch in pixels.
        steps: rounds.
        sharpness: factor on the logits: above 1, draws lie nearer to the mode (which stays).
        stop: a patch for which "keep" was chosen is done: later rounds decide nothing of it.
    """

    def __init__(
        self, width: int = 16, patch: int = 16, steps: int = 3, sharpness: float = 1.0, stop: bool = False
    ) -> None:
        super().__init__()
        self.stop = stop
        self.patch, self.steps, self.sharpness = patch, steps, sharpness
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.GELU(),
        )
        self.choices = nn.ModuleList([nn.Conv2d(4 * width + STATISTICS, len(TOOLS), 1) for _ in range(steps)])
        for parameter in self.choices.parameters():
            nn.init.zeros_(parameter)

    def logits(self, x: Tensor, step: int) -> Tensor:
        """[n, rows, columns, tools] from the mean and spread of features in the patch and in the picture, and from the
        picture's `statistics`, which tell degradations apart."""
        features = self.body(x)
        pool = lambda z: F.avg_pool2d(z, self.patch, ceil_mode=True)  # noqa: E731
        local = torch.cat([pool(features), (pool(features**2) - pool(features) ** 2).clamp(min=1e-6).sqrt()], 1)
        whole = torch.cat([local.mean((2, 3)), statistics(x)], 1)[..., None, None].expand(-1, -1, *local.shape[2:])
        return self.sharpness * self.choices[step](torch.cat([local, whole], 1)).permute(0, 2, 3, 1).float()

    def forward(self, degraded: Tensor) -> Tensor:
        h, w = degraded.shape[-2:]
        x, active, keep = degraded, None, list(TOOLS).index("keep")
        for step in range(self.steps):
            chances = OneHotCategorical(logits=self.logits(x, step))
            choice = gate(f"round{step}", chances, per="element", active=active)
            if self.stop:
                if active is not None:
                    done = torch.zeros_like(choice)
                    done[..., keep] = 1.0
                    choice = torch.where(active[..., None], choice, done)
                active = choice[..., keep] < 1  # a mixture of all stops nowhere
            weights = choice.to(x.dtype).permute(0, 3, 1, 2)
            weights = weights.repeat_interleave(self.patch, 2).repeat_interleave(self.patch, 3)[..., :h, :w]
            tools = torch.stack([tool(x) for tool in TOOLS.values()], 1)
            x = (weights[:, :, None] * tools).sum(1).clamp(0, 1)
        return x
