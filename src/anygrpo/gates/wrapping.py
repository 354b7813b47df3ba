"""Gates in a network as it stands: a submodule's output, a method's or function's result, or a parameter becomes the
mean of a distribution.

    network = with_gates(network, Gate("fre1.rate_conv", "normal", spread=0.5), Gate("fre1.para1", "normal"))
    policy = StochasticPolicy(network)

The mean is what the network computed before, with its gradient: with gates at their mean it is the same network, with
the same names of weights, and a policy gradient trains what led to the mean.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Beta, Distribution, Normal, OneHotCategorical

from anygrpo.errors import ConfigError, suggestion
from anygrpo.gates.parameters import Parameters
from anygrpo.gates.sites import Per, gate
from anygrpo.spoken import Text

SURE = 1e-4
"""A Beta's or coin's mean is kept this far from the ends of its range."""
SLACK = 1e-3
"""Numbers may lie so far outside of the stated range (of its width) by rounding."""
HELD = "gates_of_anygrpo"


@dataclass(frozen=True)
class Gate:
    """One site in a network that has none.

    Attributes:
        at: dotted name below the network of a submodule, parameter or method, or "module:function".
        distribution: "normal" (any number), "beta" (between low and high), "bernoulli" (a chance in [0, 1] becomes 0 or
            1), "categorical" (chances that sum to 1 along `dim` become one choice).
        spread: normal: standard deviation (default .1). beta: concentration a + b (default 10).
        low, high: ends of a beta's range.
        per: "site", or "element": every number its own decision.
        dim: of the choices.
        output: key or place, where the submodule or function returns several things.
        features: of a submodule. "detached": what it reads has no gradient, so a policy gradient trains it and leaves
            the body alone. "shared": it reaches the body too.
        name: of the site; `at` where not given.
    """

    at: str
    distribution: str = "normal"
    spread: float | None = None
    low: float = 0.0
    high: float = 1.0
    per: Per = "site"
    dim: int = -1
    output: str | int | None = None
    features: str = "detached"
    name: str | None = None

    @property
    def site(self) -> str:
        return self.name or self.at

    def __call__(self, x: Tensor, name: str) -> Tensor:
        """`x` [n, ...] drawn around itself, in its own type and range.

        Raises:
            ConfigError: numbers outside of the distribution's range.
        """
        if self.distribution == "categorical":
            chances = self._chances(x.movedim(self.dim, -1), name)
            return gate(name, chances, self.per).movedim(-1, self.dim).to(x.dtype)
        if self.distribution == "normal":
            spread = 0.1 if self.spread is None else self.spread
            return gate(name, Normal(x.float(), torch.full_like(x, spread).float(), False), self.per).to(x.dtype)
        wide = self.high - self.low if self.distribution == "beta" else 1.0
        share = (x.float() - (self.low if self.distribution == "beta" else 0.0)) / wide
        self._within(share, x, name)
        share = share.clamp(SURE, 1 - SURE)
        if self.distribution == "bernoulli":
            return gate(name, Bernoulli(share, validate_args=False), self.per).to(x.dtype)
        # above 1 / share, the density stays finite at both ends
        held = share.detach()
        sure = torch.maximum(1 / held, 1 / (1 - held)).clamp(min=10.0 if self.spread is None else self.spread)
        value = gate(name, Beta(share * sure, (1 - share) * sure, validate_args=False), self.per)
        return (self.low + wide * value).to(x.dtype)

    def _chances(self, x: Tensor, name: str) -> Distribution:
        if not _recording() and bool((x.float().sum(-1) - 1).abs().max() > 0.01):
            raise ConfigError(
                Text(
                    f"gate {name!r}: what lies along dim {self.dim} does not sum to 1, so it is no choice",
                    f"门控 {name!r}：沿第 {self.dim} 维之和不为 1，因此不是一个选择",
                ),
                Text(
                    "name what comes after the softmax, or the dim of the choices",
                    "请指名 softmax 之后的内容，或选项所在的维",
                ),
            )
        return OneHotCategorical(probs=x.float().clamp(min=0), validate_args=False)

    def _within(self, share: Tensor, x: Tensor, name: str) -> None:
        if _recording() or bool(((share >= -SLACK) & (share <= 1 + SLACK)).all()):
            return
        ends = f"[{self.low:g}, {self.high:g}]" if self.distribution == "beta" else "[0, 1]"
        given = f"{float(x.min()):.4g} to {float(x.max()):.4g}"
        raise ConfigError(
            Text(
                f"gate {name!r}: {self.distribution} in {ends}, and the network gives {given}",
                f"门控 {name!r}：{self.distribution} 的范围为 {ends}，而网络给出 {given}",
            ),
            Text(
                "name what comes after the sigmoid, correct low and high, or take a normal distribution",
                "请指名 sigmoid 之后的内容，改正 low 与 high，或用正态分布",
            ),
        )


def _recording() -> bool:
    """While a CUDA graph is recorded, nothing may wait for the device; ordinary passes have looked."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def with_gates(network: nn.Module, *gates: Gate) -> nn.Module:
    """`network` itself with these gates in it; its weights keep their names.

    Raises:
        ConfigError: a name that is nothing in the network, or two sites of one name.
    """
    sites = [g.site for g in gates]
    if twice := {s for s in sites if sites.count(s) > 1}:
        raise ConfigError(
            Text(f"two gates are called {sorted(twice)}", f"有两个门控都叫 {sorted(twice)}"),
            Text("give each a name of its own", "请给每个单独的名称"),
        )
    if isinstance(network, torch.jit.ScriptModule):
        raise ConfigError(
            Text("a scripted module (torch.jit) takes no gates", "脚本化模块（torch.jit）无法放入门控"),
            Text("return the module that it was scripted from", "请返回脚本化之前的模块"),
        )
    held = Held(network)
    for one in gates:
        held.add(one)
    network.__dict__[HELD] = held
    return network


def without_gates(network: nn.Module) -> nn.Module:
    """The network as it was before `with_gates`."""
    held = network.__dict__.pop(HELD, None)
    if held is not None:
        held.remove()
    return network


def gates_of(network: nn.Module) -> tuple[Gate, ...]:
    """The gates that `with_gates` put in."""
    held = network.__dict__.get(HELD)
    return () if held is None else tuple(held.gates)


class Held:
    """What was put into a network, and how to take it out again."""

    def __init__(self, network: nn.Module) -> None:
        self.network, self.gates = network, list[Gate]()
        self.seen: dict[str, int] = {}
        self.undo: list[Callable[[], Any]] = [network.register_forward_pre_hook(self._begin).remove]
        self.parameters = Parameters(network, self.seen.clear)
        self.undo.append(self.parameters.remove)

    def _begin(self, module: nn.Module, inputs: Any) -> None:
        self.seen.clear()

    def remove(self) -> None:
        for undo in reversed(self.undo):
            undo()

    def add(self, one: Gate) -> None:
        self.gates.append(one)
        if ":" in one.at:
            self._replace(*_function(one.at), one)
            return
        owner, name = _found(self.network, one.at)
        target = getattr(owner, name) if name else owner
        if isinstance(target, nn.Module):
            if one.features == "detached":
                self.undo.append(target.register_forward_pre_hook(_detached).remove)
            hook = target.register_forward_hook(lambda module, inputs, output: self._drawn(one, output))
            self.undo.append(hook.remove)
        elif isinstance(target, Tensor):
            self.parameters.add(owner, name, lambda x: one(x, self._name(one)))
        elif callable(target):
            self._replace(owner, name, one)
        else:
            raise ConfigError(
                Text(
                    f"gate at {one.at!r} is a {type(target).__name__}",
                    f"位于 {one.at!r} 的门控是 {type(target).__name__}",
                ),
                Text("name a submodule, parameter or method", "请指名子模块、参数或方法"),
            )

    def _replace(self, owner: Any, name: str, one: Gate) -> None:
        original, own = getattr(owner, name), name in vars(owner)

        @wraps(original)
        def with_gate(*given: Any, **named: Any) -> Any:
            return self._drawn(one, original(*given, **named))

        setattr(owner, name, with_gate)
        self.undo.append(lambda: setattr(owner, name, original) if own else delattr(owner, name))

    def _name(self, one: Gate) -> str:
        """A site that is reached again in one pass (a shared module) has a number."""
        count = self.seen[one.site] = self.seen.get(one.site, 0) + 1
        return one.site if count == 1 else f"{one.site}#{count}"

    def _drawn(self, one: Gate, output: Any) -> Any:
        if one.output is None:
            if not isinstance(output, Tensor):
                raise ConfigError(
                    Text(
                        f"gate at {one.at!r}: it returns {type(output).__name__}",
                        f"位于 {one.at!r} 的门控：它返回 {type(output).__name__}",
                    ),
                    Text("name which part: output = ...", "请指名是哪一部分：output = ..."),
                )
            return one(output, self._name(one))
        part = one(output[one.output], self._name(one))
        if isinstance(output, Mapping):
            return {**output, one.output: part}
        parts = list(output)
        parts[int(one.output)] = part
        return type(output)(parts) if type(output) in (list, tuple) else type(output)(*parts)


def _detached(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x.detach() if isinstance(x, Tensor) else x for x in inputs)


def _found(network: nn.Module, at: str) -> tuple[Any, str]:
    """The object that has the last word of `at` as an attribute, and that word."""
    *path, last = at.split(".")
    owner: Any = network
    for word in path:
        owner = getattr(owner, word, None)
    if owner is None or not hasattr(owner, last):
        known = [n for n, _ in network.named_modules() if n] + [n for n, _ in network.named_parameters()]
        ends = [n for n in known if n.endswith(f".{at}")]
        cure = suggestion(ends[0] if ends else at, ends or known)
        raise ConfigError(
            Text(f"gate at {at!r}: the network has nothing of that name", f"位于 {at!r} 的门控：网络中没有这个名称"),
            cure,
        )
    return owner, last


def _function(at: str) -> tuple[Any, str]:
    place, _, name = at.rpartition(":")
    loaded = [m for m in list(sys.modules.values()) if Path(getattr(m, "__file__", None) or "").stem == place]
    try:
        module = sys.modules.get(place) or (loaded[-1] if loaded else importlib.import_module(place))
    except ImportError as error:
        raise ConfigError(
            Text(f"gate at {at!r}: no module {place!r}: {error}", f"位于 {at!r} 的门控：没有模块 {place!r}：{error}"),
            Text("write it as module:function", "请写成 module:function"),
        ) from error
    if not callable(getattr(module, name, None)):
        known = [n for n, x in vars(module).items() if callable(x)]
        raise ConfigError(
            Text(f"gate at {at!r}: {place} has no function {name!r}", f"位于 {at!r} 的门控：{place} 没有函数 {name!r}"),
            suggestion(name, known),
        )
    return module, name
