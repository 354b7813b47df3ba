"""Casts of float32 weights for the matrix products, kept in memory of their own and shared with the sampler."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.language.compute.mirror import bind, mirror
from anygrpo.language.kernels.together import sets_of

CHUNK = 2**26
"""Bytes of casts whose gradients are widened together: a few launches for many weights, and at no time both widths of
all gradients."""


class Casts:
    """Copies of some float32 weights in a narrower type (or the weights themselves, where they are of that type), made
    again only when the weights have changed.

    That is told by their version counters; an assignment through `.data` that torch does not count is seen at the next
    `refresh`.
    """

    def __init__(self, wide: list[Tensor], dtype: torch.dtype, together: Sequence[Sequence[int]] = ()) -> None:
        self.wide = wide
        self._same = all(p.dtype == dtype for p in wide)
        self.copies = [] if self._same else _places(wide, dtype, together)
        self._seen: list[tuple[int, int]] = []
        self._chunks = list(_chunks(self.copies))

    @torch.no_grad()
    def refresh(self, values: list[Tensor] | None = None) -> None:
        """Make the copies again, or fill them with other values until the next `leads` or `refresh`."""
        if self._same:
            return
        torch._foreach_copy_(self.copies, self.wide if values is None else values)
        self._seen = self._state() if values is None else []

    def leads(self) -> list[Tensor]:
        """The copies, up to date, with a graph that leads to the float32 weights."""
        if self._same:
            return self.wide
        if self._seen != self._state():
            self.refresh()
        return [x for chunk in self._chunks for x in _Lead.apply(self.copies[chunk], *self.wide[chunk])]

    def _state(self) -> list[tuple[int, int]]:
        return [(p.data_ptr(), p._version) for p in self.wide]


class Narrow:
    """A twin of `core` that computes with casts of its float32 weights.

    Attributes:
        model: the twin. After `bind` gradients of its weights arrive at `core`'s.
    """

    def __init__(self, core: nn.Module, dtype: torch.dtype) -> None:
        self.model = mirror(core)
        wide = [p for p in core.parameters() if p.dtype != dtype]
        place = {id(p): i for i, p in enumerate(wide)}
        named = list(core.named_parameters(remove_duplicate=False))
        number = {name: place.get(id(p)) for name, p in named}
        sets = [[number[name] for name in names] for names in sets_of(core)]
        self._casts = Casts(wide, dtype, [one for one in sets if None not in one])  # type: ignore[misc]
        self._places = [(name, place[id(p)]) for name, p in named if id(p) in place]
        self._bind(self.model, self._casts.copies)

    def refresh(self) -> None:
        """Make the casts again."""
        self._casts.refresh()

    def show(self, other: nn.Module) -> None:
        """Fill the casts with the weights of another twin, until the next `bind` or `refresh`."""
        names = {i: name for name, i in reversed(self._places)}
        self._casts.refresh([other.get_parameter(names[i]) for i in sorted(names)])

    def bind(self) -> nn.Module:
        """The twin, up to date, with a graph that leads to the float32 weights."""
        led = self._casts.leads()
        for name, i in self._places:
            bind(self.model, name, led[i])
        return self.model

    def values(self) -> dict[str, Tensor]:
        """The casts by name, as they are."""
        return {name: self._casts.copies[i] for name, i in self._places}

    def frozen(self, weights: dict[str, Tensor]) -> nn.Module:
        """Another twin, which computes with copies of the given weights (by name) in place of the present ones."""
        twin, copies = mirror(self.model), list(self._casts.copies)
        for name, i in self._places:
            if name in weights:
                copies[i] = weights[name].to(copies[i], copy=True)
        self._bind(twin, copies)
        return twin

    def _bind(self, model: nn.Module, values: list[Tensor]) -> None:
        for name, i in self._places:
            bind(model, name, nn.Parameter(values[i].detach(), requires_grad=False))


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


def _places(wide: list[Tensor], dtype: torch.dtype, together: Sequence[Sequence[int]]) -> list[Tensor]:
    """Memory for a copy of each; those `together` in one piece, so that they serve as one weight too."""
    made: dict[int, Tensor] = {}
    for members in together:
        parts = [wide[i] for i in members]
        shape = (sum(len(p) for p in parts), *parts[0].shape[1:])
        whole = torch.empty(shape, dtype=dtype, device=parts[0].device)
        made |= dict(zip(members, whole.split([len(p) for p in parts])))
    return [made[i] if i in made else torch.empty_like(p, dtype=dtype, requires_grad=False) for i, p in enumerate(wide)]


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
