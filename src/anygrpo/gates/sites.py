"""Sample sites inside a forward pass: `gate(name, distribution)`.

    class Net(nn.Module):
        def forward(self, x):
            strength = gate("strength", Beta(a, b))       # a, b: [n, 1]
            return x + strength * self.body(x)

Outside of a policy `gate` returns the distribution's mean, so the network is an ordinary deterministic one. Inside, the
policy decides: draw, replay given values, or take the mean or mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

import torch
from torch import Tensor
from torch.distributions import Distribution, kl_divergence

from anygrpo.errors import ConfigError, suggestion
from anygrpo.gates.distributions import base_of, draw, in_support, middle

Per = Literal["site", "element"]
Choose = Callable[[str, Distribution], Tensor]


@dataclass(frozen=True)
class Site:
    """One visited gate.

    Attributes:
        distribution: batch shape [n, ...]; what an `Independent` holds as event is one decision anyhow.
        value: what the gate returned.
        per: "site": one decision, summed over all elements. "element": one decision per element of the batch shape
            (the positions of a map).
    """

    distribution: Distribution
    value: Tensor
    per: Per

    def decisions(self, x: Tensor) -> Tensor:
        """Numbers of the batch shape [n, ...] as [n, t] float32."""
        flat = x.float().reshape(x.shape[0], -1)
        return flat.sum(1, keepdim=True) if self.per == "site" else flat


class AllVisited(Exception):
    """Ends a pass whose output no one reads, once its last site is known."""


class Tape:
    """The sites one forward pass visited, in order, and the rule that chose their values.

    Args:
        rows: of the input.
        choose: the rule.
        patterns: shell patterns of the sites that are decisions; the others are at their mean, with its gradient.
        stop_after: number of decided sites after which `AllVisited` is raised: what follows would not be read.
    """

    def __init__(
        self, rows: int, choose: Choose, patterns: tuple[str, ...] = ("*",), stop_after: int | None = None
    ) -> None:
        self.rows, self.choose, self.patterns, self.stop_after = rows, choose, patterns, stop_after
        self.sites: dict[str, Site] = {}
        self.passed: list[str] = []

    def visit(self, name: str, distribution: Distribution, per: Per) -> Tensor:
        """The value of this site in this pass.

        Raises:
            ConfigError: the name was used before in this pass, or the distribution has no row dimension.
        """
        if name in self.sites:
            raise ConfigError(f"gate {name!r} was reached twice in one forward pass", "give every site its own name")
        shape = tuple(distribution.batch_shape)
        if not shape or shape[0] != self.rows:
            raise ConfigError(
                f"gate {name!r}: its distribution has batch shape {list(shape)}, but the input has {self.rows} rows",
                "make the parameters [n, ...], one row for each input row (expand shared ones)",
            )
        base_of(distribution)
        if not any(fnmatchcase(name, pattern) for pattern in self.patterns):
            self.passed.append(name)
            return middle(distribution)
        value = self.choose(name, distribution)
        self.sites[name] = Site(distribution, value, per)
        if len(self.sites) == self.stop_after:
            raise AllVisited
        return value

    @property
    def width(self) -> int:
        """Decisions T of a row."""
        sizes = [1 if s.per == "site" else s.distribution.batch_shape[1:].numel() for s in self.sites.values()]
        return sum(sizes)

    def values(self) -> dict[str, Tensor]:
        return {name: site.value.detach() for name, site in self.sites.items()}

    def log_probs(self) -> Tensor:
        """[n, T] float32 of the values of this pass."""
        return self._all(lambda s: s.distribution.log_prob(in_support(s.distribution, s.value.detach())))

    def entropy(self) -> Tensor:
        """[n, T], exact (differential for continuous sites)."""
        return self._all(lambda s: s.distribution.entropy())

    def kl_to(self, reference: Tape) -> Tensor:
        """[n, T]: KL(this || reference), exact, of each decision given the input and the earlier sites' values."""
        return torch.cat(
            [
                site.decisions(kl_divergence(site.distribution, other.distribution))
                for site, other in zip(self.sites.values(), reference.sites.values(), strict=True)
            ],
            1,
        )

    def _all(self, number: Callable[[Site], Tensor]) -> Tensor:
        return torch.cat([site.decisions(number(site)) for site in self.sites.values()], 1)


_TAPE: ContextVar[Tape | None] = ContextVar("anygrpo_gate_tape", default=None)


def gate(name: str, distribution: Distribution, per: Per = "site") -> Tensor:
    """A sample site.

    Args:
        name: unique in one forward pass.
        distribution: Beta, Normal, Categorical, OneHotCategorical or Bernoulli (also inside `Independent`), with batch
            shape [n] or [n, ...]: scalars, channels, or a low-resolution map.
        per: "site": all elements of a row are one decision. "element": each is clipped as its own decision.

    Returns:
        batch shape + event shape. Without gradient when drawn or replayed; the mean (with gradient) otherwise.
    """
    tape = _TAPE.get()
    return middle(distribution) if tape is None else tape.visit(name, distribution, per)


@contextmanager
def recording(
    rows: int, choose: Choose, patterns: tuple[str, ...] = ("*",), stop_after: int | None = None
) -> Iterator[Tape]:
    """Record the sites that a forward pass of `rows` rows visits; arguments as for `Tape`."""
    tape = Tape(rows, choose, patterns, stop_after)
    token = _TAPE.set(tape)
    try:
        yield tape
    finally:
        _TAPE.reset(token)


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
            raise ConfigError(f"gate {name!r} has no stored value", suggestion(name, values))
        return values[name]

    return choose


def deterministic(kind: str) -> Choose:
    """Chooses the mean or the mode."""
    return lambda name, distribution: middle(distribution, kind)
