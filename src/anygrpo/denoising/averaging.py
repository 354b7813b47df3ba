"""A running average of the trained weights, for held-out samples. It is no part of a checkpoint: after `--resume` it
begins again at the weights found there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from anygrpo.core.policy import frozen_weights, state_of


class Averaged:
    """average := decay average + (1 - decay) weights, every so many updates.

    Args:
        module: whose trainable weights are averaged.
        decay, every: see above.
    """

    def __init__(self, module: nn.Module, decay: float, every: int):
        self.module, self.decay, self.every = module, decay, every
        self.average: dict[str, Tensor] | None = None

    @torch.no_grad()
    def follow(self, before: int, now: int) -> None:
        """The weights have come from update `before` to `now`."""
        if self.average is None or now < before:
            self.average = {name: p.clone() for name, p in state_of(self.module).items()}
        for _ in range(now // self.every - before // self.every):
            for name, p in state_of(self.module).items():
                self.average[name].lerp_(p.to(self.average[name]), 1 - self.decay)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Inside, the module has the averaged weights; its own before the first update."""
        if self.average is None:
            yield
            return
        with frozen_weights(self.module, self.average):
            yield
