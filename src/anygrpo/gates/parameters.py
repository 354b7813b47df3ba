"""Parameters as gates: each row of a pass has its own values of them.

A module reads its parameter as one tensor for all rows. It is given one with a row dimension in front instead, in the
form in which the module's own arithmetic then treats each row by its own values; that is tried before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.errors import ConfigError
from anygrpo.gates.sites import plainly
from anygrpo.spoken import Text

CLOSE = 1e-4


@dataclass
class Entry:
    """One parameter (or buffer) of `owner`; `ones` trailing dimensions are put behind its own (None: not tried yet)."""

    owner: nn.Module
    name: str
    draw: Callable[[Tensor], Tensor]
    ones: int | None = None

    @property
    def table(self) -> dict[str, Any]:
        return self.owner._parameters if self.name in self.owner._parameters else self.owner._buffers

    def rows(self, x: Tensor, ones: int) -> Tensor:
        """[n, *shape, 1, ...]"""
        return x.reshape(*x.shape, *[1] * ones)


class Parameters:
    """Puts drawn values in place of parameters while `network` runs.

    Args:
        network: whose parameters they are.
        again: called after trial passes, before the one that counts.
    """

    def __init__(self, network: nn.Module, again: Callable[[], None]) -> None:
        self.network, self.again, self.entries, self.trying = network, again, list[Entry](), False
        self._plain: list[Tensor] = []
        before = network.register_forward_pre_hook(self._put)
        after = network.register_forward_hook(self._take_back, always_call=True)
        self._handles = (before, after)

    def add(self, owner: nn.Module, name: str, draw: Callable[[Tensor], Tensor]) -> None:
        self.entries.append(Entry(owner, name, draw))

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _put(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if self.trying or not self.entries:
            return
        for entry in self.entries:
            if entry.ones is None:
                entry.ones = self._form(entry, inputs)
                self.again()
        n = inputs[0].shape[0]
        self._plain = [entry.table[entry.name] for entry in self.entries]
        for entry, x in zip(self.entries, self._plain):
            drawn = entry.draw(x.expand(n, *x.shape))
            entry.table[entry.name] = entry.rows(drawn, entry.ones or 0)

    def _take_back(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if self.trying:
            return
        for entry, x in zip(self.entries, self._plain):
            entry.table[entry.name] = x
        self._plain = []

    @torch.no_grad()
    def _form(self, entry: Entry, inputs: tuple[Tensor, ...]) -> int:
        """The number of trailing dimensions with which each of two rows is what the network makes of it alone.

        Raises:
            ConfigError: none.
        """
        two = [x[:1].expand(2, *x.shape[1:]) for x in inputs]
        one = [x[:1] for x in inputs]
        x = entry.table[entry.name]
        values = [x.detach(), x.detach() * 1.25 + 0.1]
        self.trying = True
        try:
            with plainly():
                alone = [self._with(entry, v, one) for v in values]
                for ones in range(4):
                    try:
                        both = self._with(entry, entry.rows(torch.stack(values), ones), two)
                    except (RuntimeError, IndexError, ValueError):
                        continue
                    if self._same(both, alone):
                        return ones
        finally:
            self.trying = False
        raise ConfigError(
            Text(
                f"parameter {entry.name!r} of {type(entry.owner).__name__} cannot have a value for each row: "
                f"{list(x.shape)} is used for all rows at once, or nothing depends on it here",
                f"{type(entry.owner).__name__} 的参数 {entry.name!r} 不能每行取一个值：{list(x.shape)} "
                "同时用于所有行，或此处没有内容取决于它",
            ),
            Text("name a submodule or method that computes from it", "请指名一个用它计算的子模块或方法"),
        )

    def _with(self, entry: Entry, value: Tensor, inputs: list[Tensor]) -> Any:
        kept = entry.table[entry.name]
        entry.table[entry.name] = value
        try:
            return self.network(*inputs)
        finally:
            entry.table[entry.name] = kept

    @staticmethod
    def _same(both: Any, alone: list[Any]) -> bool:
        """Whether each row of `both` is what its value gives alone; False too where the value changes nothing."""
        whole, first, last = _tensors(both), _tensors(alone[0]), _tensors(alone[1])
        if not any(bool((a - b).abs().max() > 10 * CLOSE * a.abs().max()) for a, b in zip(first, last)):
            return False
        return all(
            w.shape[0] == 2 and w[:1].shape == a.shape and _near(w[:1], a) and _near(w[1:], b)
            for w, a, b in zip(whole, first, last)
        )


def _tensors(made: Any) -> list[Tensor]:
    parts = [made] if isinstance(made, Tensor) else list(made.values() if isinstance(made, dict) else made)
    return [x for x in parts if isinstance(x, Tensor)]


def _near(x: Tensor, y: Tensor) -> bool:
    return bool((x - y).abs().max() <= CLOSE * y.abs().max().clamp(min=1e-6))
