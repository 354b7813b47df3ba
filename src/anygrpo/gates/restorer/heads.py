"""Beta gates on a few numbers per picture, read from pooled features and statistics of the picture."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Beta

from anygrpo.gates.sites import gate


def pooled(features: Tensor) -> Tensor:
    """[n, C, h, w] -> [n, 2C]: mean and standard deviation over the picture."""
    flat = features.flatten(2)
    return torch.cat([flat.mean(2), (flat.var(2, unbiased=False) + 1e-6).sqrt()], 1)


def statistics(image: Tensor) -> Tensor:
    """[n, c, H, W] in [0, 1] -> [n, `STATISTICS`]: what tells degradations apart, each number of order 1.

    Brightness, contrast, the darkest and brightest regions, and the log energy of detail at four scales (noise is all
    fine detail, blur has none, haze lifts the darkest region).
    """
    coarse = F.avg_pool2d(image, 8, ceil_mode=True).flatten(1)
    numbers = [coarse.mean(1), 4 * image.flatten(1).std(1), coarse.amin(1), coarse.amax(1)]
    level = image
    for _ in range(4):
        smaller = F.avg_pool2d(level, 2, ceil_mode=True)
        detail = level - F.interpolate(smaller, size=level.shape[-2:], mode="nearest")
        numbers.append((detail.square().flatten(1).mean(1) + 1e-8).log() / 2 + 3)
        level = smaller
    return 2 * torch.stack(numbers, 1) - 1


STATISTICS = 8
REACH = 4.0
"""A gate's concentration stays within exp(+-4), 55 times, of its start: a run-away update cannot make it infinite."""


class BetaHead(nn.Module):
    """A gate of `count` values in (0, 1), one decision: Beta(1 + m K, 1 + (1 - m) K).

    m = sigmoid(u) is where, K > 0 how sure; both start the same for every picture (last layer zero). The density is
    unimodal and bounded for every m and K, so log-probs stay finite near 0 and 1.

    Args:
        name: of the sample site.
        features: channels of the feature map it reads.
        count: values per picture.
        concentration: K at the start.
        detached: read the features without gradient, so that a policy gradient trains the head and not the body.
    """

    def __init__(
        self, name: str, features: int, count: int, concentration: float, detached: bool = True, hidden: int = 32
    ) -> None:
        super().__init__()
        self.name, self.count, self.detached = name, count, detached
        self.body = nn.Sequential(nn.Linear(2 * features + STATISTICS, hidden), nn.GELU(), nn.Linear(hidden, 2 * count))
        for parameter in self.body[-1].parameters():
            nn.init.zeros_(parameter)
        self.log_k = math.log(concentration)

    def forward(self, features: Tensor, told: Tensor) -> Tensor:
        """Features [n, C, h, w] and `statistics` of the picture [n, 8] -> [n, count]."""
        read = torch.cat([pooled(features.detach() if self.detached else features), told], 1)
        u, v = self.body(read).float().chunk(2, 1)
        where, k = torch.sigmoid(u), torch.exp(self.log_k + REACH * torch.tanh(v / REACH))
        # validation reads the device four times a gate, and these parameters are at least 1 by construction
        return gate(self.name, Beta(1 + where * k, 1 + (1 - where) * k, validate_args=False))
