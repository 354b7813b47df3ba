"""Casts of float32 weights for the matrix products, kept in memory of their own and shared with the sampler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.samplers.mirror import bind, mirror

CHUNK = 2**26
"""Bytes of casts whose gradients are widened together: a few launches for many weights, and at no time both widths of
all gradients."""


class Narrow:
    """A twin of `core` that computes with casts of its float32 weights.

    The casts are made again only when the weights have changed, which is told by their version counters; an assignment
    through `.data` that torch does not count is seen at the next `refresh`.

    Attributes:
        model: the twin. After `bind` gradients of its weights arrive at `core`'s.
    """

    def __init__(self, core: nn.Module, dtype: torch.dtype) -> None:
        self.model, self.dtype = mirror(core), dtype
        self._wide = [p for p in core.parameters() if p.dtype != dtype]
        self._copies = [torch.empty_like(p, dtype=dtype, requires_grad=False) for p in self._wide]
        self._seen: list[tuple[int, int]] = []
        place = {id(p): i for i, p in enumerate(self._wide)}
        named = list(core.named_parameters(remove_duplicate=False))
        self._places = [(name, place[id(p)]) for name, p in named if id(p) in place]
        self._chunks = list(_chunks(self._copies))
        for name, i in self._places:
            bind(self.model, name, nn.Parameter(self._copies[i], requires_grad=False))

    @torch.no_grad()
    def refresh(self) -> None:
        """Make the casts again."""
        torch._foreach_copy_(self._copies, self._wide)
        self._seen = self._state()

    @torch.no_grad()
    def show(self, other: nn.Module) -> None:
        """Fill the casts with the weights of another twin, until the next `bind` or `refresh`."""
        torch._foreach_copy_(self._copies, [_parameter(other, name) for name in self._names()])
        self._seen = []

    def bind(self) -> nn.Module:
        """The twin, up to date, with a graph that leads to the float32 weights."""
        if self._seen != self._state():
            self.refresh()
        led: list[Tensor] = []
        for chunk in self._chunks:
            led += _Lead.apply(self._copies[chunk], *self._wide[chunk])
        for name, i in self._places:
            bind(self.model, name, led[i])
        return self.model

    def values(self) -> dict[str, Tensor]:
        """The casts by name, as they are."""
        return {name: self._copies[i] for name, i in self._places}

    def frozen(self, weights: dict[str, Tensor]) -> nn.Module:
        """Another twin, which computes with copies of the given weights (by name) in place of the present ones."""
        twin, copies = mirror(self.model), {}
        for name, i in self._places:
            if name in weights:
                copies.setdefault(i, weights[name].to(self._copies[i], copy=True))
        for name, i in self._places:
            value = copies.get(i, self._copies[i])
            bind(twin, name, nn.Parameter(value.detach(), requires_grad=False))
        return twin

    def _names(self) -> list[str]:
        """One name of each cast weight, in order."""
        return [name for _, name in sorted({i: name for name, i in reversed(self._places)}.items())]

    def _state(self) -> list[tuple[int, int]]:
        return [(p.data_ptr(), p._version) for p in self._wide]


class _Lead(torch.autograd.Function):
    """From casts that are there already to the weights they were made of: the gradients are widened."""

    @staticmethod
    def forward(ctx: Any, casts: list[Tensor], *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.dtypes = [p.dtype for p in weights]
        return tuple(x.detach() for x in casts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        given = [g for g in gradients if g is not None]
        wide = [torch.empty_like(g, dtype=kind) for g, kind in zip(gradients, ctx.dtypes) if g is not None]
        if given:
            torch._foreach_copy_(wide, given)
        made = iter(wide)
        return None, *(None if g is None else next(made) for g in gradients)


def _chunks(copies: list[Tensor]) -> Iterator[slice]:
    """Ranges of at most `CHUNK` bytes, or of one weight."""
    start = size = 0
    for i, x in enumerate(copies):
        if i > start and size + x.nbytes > CHUNK:
            yield slice(start, i)
            start, size = i, 0
        size += x.nbytes
    if copies:
        yield slice(start, len(copies))


def _parameter(model: nn.Module, name: str) -> Tensor:
    path, _, leaf = name.rpartition(".")
    value = model.get_submodule(path)._parameters[leaf]
    assert value is not None
    return value
