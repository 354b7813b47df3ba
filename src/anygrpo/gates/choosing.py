"""Rules by which a pass chooses its gates' values: drawn, given, or the mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from anygrpo.errors import ConfigError
from anygrpo.gates.distributions import draw, middle
from anygrpo.gates.sites import AGAIN, TAPE, Choose, Tape
from anygrpo.spoken import Text


class Drawing:
    """Chooses by drawing; counts the numbers that the edge guard moved."""

    def __init__(self) -> None:
        self.moved: list[Tensor] = []  # stays on the device: reading it at every gate would wait for all before it
        self.drawn = 0

    def __call__(self, name: str, distribution: Distribution) -> Tensor:
        value, moved = draw(distribution)
        self.moved.append(moved)
        self.drawn += value[0].numel()
        return value

    def counts(self) -> Tensor:
        """[n, 2] int64: numbers moved and numbers drawn of each row."""
        moved = torch.stack(self.moved).sum(0)
        return torch.stack([moved, torch.full_like(moved, self.drawn)], 1)


def replaying(values: dict[str, Tensor]) -> Choose:
    """Chooses the given values [n, ...] by site name."""

    def choose(name: str, distribution: Distribution) -> Tensor:
        if name not in values:
            known = ", ".join(values)
            raise ConfigError(
                Text(
                    f"gate {name!r} was not met when the values were drawn (met: {known})",
                    f"抽样时没有遇到门控 {name!r}（遇到的有：{known}）",
                ),
                Text(
                    "which gates a pass meets must not depend on the other pictures beside, or on chance",
                    "一次前向经过哪些门控，不能取决于同批的其他图像或随机",
                ),
            )
        value, shape = values[name], distribution.batch_shape + distribution.event_shape
        return value if value.shape == shape else value[tuple(slice(0, k) for k in shape)]  # padded to larger rows

    return choose


class deterministic:
    """Chooses the mean or the mode."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, name: str, distribution: Distribution) -> Tensor:
        return middle(distribution, self.kind)

    @property
    def is_mean(self) -> bool:
        """What a gate gives outside of a policy, too."""
        return self.kind == "mean"


def checkpointed(function: Callable[..., Any], *inputs: Any) -> Any:
    """`function(*inputs)`, its activations computed again for the gradient (torch.utils.checkpoint), its gates at the
    same values then as now."""
    from torch.utils.checkpoint import checkpoint

    tape, seen = TAPE.get(), dict[str, Tensor]()
    if tape is None:
        return checkpoint(function, *inputs, use_reentrant=False)
    first = [True]

    def run(*given: Any) -> Any:
        if first[0]:
            first[0] = False
            before, token = set(tape.sites), AGAIN.set(True)
            try:
                return function(*given)
            finally:
                AGAIN.reset(token)
                seen.update({n: s.value for n, s in tape.sites.items() if n not in before})
        again = Tape(tape.rows, replaying(seen), tape.patterns)
        again.learns = False  # what it records is not read
        token = TAPE.set(again)
        try:
            return function(*given)
        finally:
            TAPE.reset(token)

    return checkpoint(run, *inputs, use_reentrant=False)
