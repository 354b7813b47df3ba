"""Beta gates on a few numbers per picture, read from pooled features."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.distributions import Beta

from anygrpo.policies.stochastic.gates import gate


def pooled(features: Tensor) -> Tensor:
    """[n, C, h, w] -> [n, 2C]: mean and standard deviation over the picture."""
    flat = features.flatten(2)
    return torch.cat([flat.mean(2), (flat.var(2, unbiased=False) + 1e-6).sqrt()], 1)


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
        self.body = nn.Sequential(nn.Linear(2 * features, hidden), nn.GELU(), nn.Linear(hidden, 2 * count))
        last = self.body[-1]
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.log_k = math.log(concentration)

    def forward(self, features: Tensor) -> Tensor:
        """[n, C, h, w] -> [n, count]."""
        read = pooled(features.detach() if self.detached else features)
        u, v = self.body(read).float().chunk(2, 1)
        where, k = torch.sigmoid(u), torch.exp(self.log_k + v)
        return gate(self.name, Beta(1 + where * k, 1 + (1 - where) * k))
