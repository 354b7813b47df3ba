"""A running average of the trained weights, for held-out samples. It goes into checkpoints: a resumed run measures the
same weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from anygrpo.core.trained import frozen_weights, state_of
from anygrpo.train.parallel import is_main
from anygrpo.train.sharded import laid_out, whole_of


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
            return
        for _ in range(now // self.every - before // self.every):
            for name, p in state_of(self.module).items():
                self.average[name].lerp_(p.to(self.average[name]), 1 - self.decay)

    def carried(self) -> dict[str, Tensor]:
        """The average by weight's name, whole and on the host; empty before the first update, and on ranks that write
        no checkpoint. Every rank calls it where weights are sharded."""
        average = self.average or {}
        return whole_of(average, list(average) if is_main() else ())

    def resumed(self, average: Mapping[str, Tensor]) -> None:
        """Take over what `carried` gave; nothing is known of a checkpoint that has none, and it begins again here."""
        own = state_of(self.module)
        if average.keys() == own.keys():
            self.average = {
                name: laid_out(x.to(own[name].device, own[name].dtype), own[name]) for name, x in average.items()
            }

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Inside, the module has the averaged weights; its own before the first update."""
        if self.average is None:
            yield
            return
        with frozen_weights(self.module, self.average):
            yield
