"""A restorer of several experts, one of which restores a picture: which one is a choice that a policy gradient trains.

Each expert is a small encoder-decoder: weights that all have in common plus a difference of its own, 0 at the start. A
mixture of all experts would let supervision train the choice, at the price of running all of them; a choice of one has
no derivative, and costs one expert in training and in use.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import OneHotCategorical
from torch.func import functional_call

from anygrpo.gates.restorer.frequency import Block
from anygrpo.gates.restorer.heads import STATISTICS, statistics
from anygrpo.gates.sites import gate


class Expert(nn.Module):
    """Encoder-decoder of three levels: restored = gain x picture + offset + residual; gains and offsets are maps at a
    quarter of the resolution, for what changes brightness and contrast as a whole (haze, low light)."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        stack = lambda w: nn.Sequential(*[Block(w) for _ in range(blocks)])  # noqa: E731
        widths = (width, 2 * width, 4 * width)
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.encoders = nn.ModuleList([stack(w) for w in widths])
        self.downs = nn.ModuleList([nn.Conv2d(w, 2 * w, 2, stride=2) for w in widths[:2]])
        self.ups = nn.ModuleList([nn.Conv2d(2 * w, 4 * w, 1) for w in widths[:2]])
        self.decoders = nn.ModuleList([stack(w) for w in widths[:2]])
        self.out, self.colour = nn.Conv2d(width, 3, 3, padding=1), nn.Conv2d(4 * width, 6, 1)
        for parameter in (*self.out.parameters(), *self.colour.parameters()):
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """[n, 3, H, W], sides a multiple of 4."""
        y, skips = self.stem(x), []
        for i, down in enumerate(self.downs):
            y = self.encoders[i](y)
            skips.append(y)
            y = down(y)
        y = self.encoders[2](y)
        maps = F.interpolate(self.colour(y), scale_factor=4, mode="bilinear", align_corners=False)
        gain, offset = maps.chunk(2, 1)
        for i in (1, 0):
            y = self.decoders[i](F.pixel_shuffle(self.ups[i](y), 2) + skips[i])
        return x * (1 + gain) + offset + self.out(y)


class ExpertsRestorer(nn.Module):
    """Degraded [n, 3, H, W] in [0, 1] -> restored; one site, "expert", so T = 1.

    The router reads the picture's `statistics` alone: a policy gradient trains it and no expert. The mean of the choice
    is a mixture of all experts' outputs; set `deterministic = "mode"` to use one.

    Args:
        width: channels of an expert at full resolution (2x and 4x below).
        blocks: residual blocks per level.
        experts: how many.
        sharpness: factor on the logits.
    """

    def __init__(self, width: int = 16, blocks: int = 1, experts: int = 4, sharpness: float = 1.0) -> None:
        super().__init__()
        self.common, self.sharpness = Expert(width, blocks), sharpness
        own = {_key(name): torch.zeros(experts, *p.shape) for name, p in self.common.named_parameters()}
        self.own = nn.ParameterDict(own)
        self.router = nn.Sequential(nn.Linear(STATISTICS, 32), nn.GELU(), nn.Linear(32, experts))
        for parameter in self.router[-1].parameters():
            nn.init.zeros_(parameter)

    def expert(self, k: int, x: Tensor) -> Tensor:
        """What expert `k` makes of pictures."""
        weights = {name: p + self.own[_key(name)][k] for name, p in self.common.named_parameters()}
        return functional_call(self.common, weights, (x,))

    def forward(self, degraded: Tensor) -> Tensor:
        h, w = degraded.shape[-2:]
        x = F.pad(degraded, (0, -w % 4, 0, -h % 4), mode="replicate") if h % 4 or w % 4 else degraded
        logits = self.sharpness * self.router(statistics(degraded)).float()
        choice = gate("expert", OneHotCategorical(logits=logits, validate_args=False)).to(x.dtype)
        return self._chosen(x, choice)[..., :h, :w]

    def _chosen(self, x: Tensor, choice: Tensor) -> Tensor:
        """Each row by its expert; rows whose choice is soft by all of them, weighted."""
        used = (choice > 0).any(0).nonzero()[:, 0].tolist()
        if bool((choice.amax(1) == 1).all()):
            rows = [choice[:, k].nonzero()[:, 0] for k in used]
            made = torch.cat([self.expert(k, x[i]) for k, i in zip(used, rows)])
            return made[torch.cat(rows).argsort()]
        parts = [choice[:, k, None, None, None] * self.expert(k, x) for k in used]
        return torch.stack(parts).sum(0)


def _key(name: str) -> str:
    """A parameter's name as a key of a ParameterDict, which takes no dots."""
    return name.replace(".", "_")
