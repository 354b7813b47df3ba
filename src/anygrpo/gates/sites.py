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
from anygrpo.gates.distributions import in_float32, in_support, middle, rounded
from anygrpo.spoken import Text

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
        active: [n, ...] bool of the batch shape: False where nothing is decided (a patch that has stopped); None: all.
    """

    distribution: Distribution
    value: Tensor
    per: Per
    active: Tensor | None = None

    def decisions(self, x: Tensor) -> Tensor:
        """Numbers of the batch shape [n, ...] as [n, t] float32; those of elements that decide nothing are 0."""
        if self.active is not None:
            x = torch.where(self.active, x, torch.zeros_like(x))
        flat = x.float().reshape(x.shape[0], -1)
        return flat.sum(1, keepdim=True) if self.per == "site" else flat

    def mask(self) -> Tensor:
        """[n, t] bool: decisions that are taken."""
        if self.active is None:
            shape = self.distribution.batch_shape
            width = 1 if self.per == "site" else shape[1:].numel()
            return torch.ones(shape[0], width, dtype=torch.bool, device=self.value.device)
        flat = self.active.reshape(self.active.shape[0], -1)
        return flat.any(1, keepdim=True) if self.per == "site" else flat


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
        self.learns = torch.is_grad_enabled()
        self.sites: dict[str, Site] = {}
        self.passed: list[str] = []

    def visit(self, name: str, distribution: Distribution, per: Per, active: Tensor | None = None) -> Tensor:
        """The value of this site in this pass, in the type of the distribution's parameters.

        Raises:
            ConfigError: the name was used before in this pass, the distribution has no row dimension, or the site lies
                in a part of the network that is run again for its gradient.
        """
        if name in self.sites:
            raise ConfigError(
                Text(f"gate {name!r} was reached twice in one forward pass", f"门控 {name!r} 在一次前向中到达了两次"),
                Text("give every site its own name", "请给每个采样点单独的名称"),
            )
        shape = tuple(distribution.batch_shape)
        if not shape or shape[0] != self.rows:
            raise ConfigError(
                Text(
                    f"gate {name!r}: its distribution has batch shape {list(shape)}, but the input "
                    f"has {self.rows} rows",
                    f"门控 {name!r}：它的分布的批形状为 {list(shape)}，而输入有 {self.rows} 行",
                ),
                Text(
                    "make the parameters [n, ...], one row for each input row (expand shared ones)",
                    "请使参数为 [n, ...]，每个输入行一行（共享的参数请扩展）",
                ),
            )
        distribution, dtype = in_float32(distribution)
        if not any(fnmatchcase(name, pattern) for pattern in self.patterns):
            self.passed.append(name)
            return rounded(middle(distribution), distribution, dtype)
        if self.learns and not getattr(self.choose, "is_mean", False):
            _refuse_a_second_run(name)
        value = rounded(self.choose(name, distribution), distribution, dtype)
        if active is not None:
            still = active.reshape(*active.shape, *[1] * (value.dim() - active.dim()))
            value = torch.where(still, value, middle(distribution, "mode").to(value.dtype))
        self.sites[name] = Site(distribution, value, per, active)
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
        return self._all(lambda s: s.distribution.log_prob(in_support(s.distribution, _number(s.value.detach()))))

    def mask(self) -> Tensor:
        """[n, T] bool: decisions that were taken."""
        return torch.cat([site.mask() for site in self.sites.values()], 1)

    def parts(self) -> Tensor:
        """[T] int16: the element of its map that a decision is for; all 0 where sites differ in their elements."""
        widths = {s.mask().shape[1] for s in self.sites.values()}
        device = next(iter(self.sites.values())).value.device
        if len(widths) > 1 or any(s.per == "site" for s in self.sites.values()):
            return torch.zeros(self.width, dtype=torch.int16, device=device)
        return torch.arange(widths.pop(), dtype=torch.int16, device=device).repeat(len(self.sites))

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


TAPE: ContextVar[Tape | None] = ContextVar("anygrpo_gate_tape", default=None)


def _number(x: Tensor) -> Tensor:
    return x.float() if x.is_floating_point() else x


def _refuse_a_second_run(name: str) -> None:
    """A part that is checkpointed runs again during the backward pass, outside of the policy: a gate in it would then
    be at its mean, and the gradient that of another pass. (torch's own marks; a test holds them.)

    Raises:
        ConfigError: this site lies in such a part.
    """
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)  # pyright: ignore[reportAttributeAccessIssue]
    again = hooks is not None and getattr(hooks[0], "__module__", "") == "torch.utils.checkpoint"
    if (again and not AGAIN.get()) or not torch.is_grad_enabled():
        raise ConfigError(
            Text(
                f"gate {name!r} lies in a part that is checkpointed (or under no_grad): its gradient would be wrong",
                f"门控 {name!r} 位于使用梯度检查点（或 no_grad）的部分：它的梯度会是错的",
            ),
            Text(
                "use anygrpo.gates.build.checkpointed(function, *inputs) there, or put the gate outside of that part",
                "请在那里用 anygrpo.gates.build.checkpointed(function, *inputs)，或把门控放在该部分之外",
            ),
        )


AGAIN: ContextVar[bool] = ContextVar("anygrpo_gates_come_again", default=False)


@contextmanager
def plainly() -> Iterator[None]:
    """Gates at their mean, whatever a policy has chosen outside."""
    token = TAPE.set(None)
    try:
        yield
    finally:
        TAPE.reset(token)


def gate(name: str, distribution: Distribution, per: Per = "site", active: Tensor | None = None) -> Tensor:
    """A sample site.

    Args:
        name: unique in one forward pass.
        distribution: Beta, Normal, Categorical, OneHotCategorical or Bernoulli (also inside `Independent`), with batch
            shape [n] or [n, ...]: scalars, channels, or a low-resolution map.
        per: "site": all elements of a row are one decision. "element": each is clipped as its own decision.
        active: bool of the batch shape: False where nothing is decided any more (patches that have stopped). Those are
            at the mode, and no part of the loss.

    Returns:
        batch shape + event shape. Without gradient when drawn or replayed; the mean (with gradient) otherwise.
    """
    tape = TAPE.get()
    if tape is not None:
        return tape.visit(name, distribution, per, active)
    plain, dtype = in_float32(distribution)
    return rounded(middle(plain), plain, dtype)


@contextmanager
def recording(
    rows: int, choose: Choose, patterns: tuple[str, ...] = ("*",), stop_after: int | None = None
) -> Iterator[Tape]:
    """Record the sites that a forward pass of `rows` rows visits; arguments as for `Tape`."""
    tape = Tape(rows, choose, patterns, stop_after)
    token = TAPE.set(tape)
    try:
        yield tape
    finally:
        TAPE.reset(token)


def expect_sites(tape: Tape, network: str, sites: list[str]) -> None:
    """Raises: ConfigError where a pass of `network` met no gate that `sites` names: all samples of a group would be
    equal."""
    if tape.passed and not tape.sites:
        raise ConfigError(
            Text(
                f"sites = {sites} match none of the network's",
                f"sites = {sites} 与网络的门控无一相符",
            ),
            suggestion("", tape.passed),
        )
    if not tape.sites:
        raise ConfigError(
            Text(
                f"{network} has no sample site: all samples of a group would be equal",
                f"{network} 没有采样点：一组的样本会全部相同",
            ),
            Text(
                'call gate("name", distribution) in its forward (from anygrpo.gates.build import gate)',
                '请在它的 forward 中调用 gate("name", distribution)（from anygrpo.gates.build import gate）',
            ),
        )
