"""Keys and values of a generation: each prompt's once, each row's own beside them, and attention over both."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.language.kernels import decoding
from anygrpo.language.kernels.trial import agrees


@dataclass
class GroupCache:
    """P prompts, R rows. Buffers are made once and written in place.

    Attributes:
        prompt_of: [R] which prompt a row belongs to.
        slot: [R] place of the row in the [P, S] rectangle in which the rows of a prompt lie side by side.
        slots: S.
        lengths: [P] int32 of the prompts.
        hidden: [P, Lp] bool, True at padding of prompts; None where all are equally long.
        prompt_k, prompt_v: a layer each: [P, KV, Lp, D].
        own_k, own_v: a layer each: [R, KV, T, D].
        order: [R] int64: the rows, prompt by prompt (as they lie, but where places are refilled).
        first, count: [P] int32: where each prompt's rows begin in `order`, and how many it has.
        refilled: rows may lie in another order than their prompts.
    """

    prompt_of: Tensor
    slot: Tensor
    slots: int
    lengths: Tensor
    hidden: Tensor | None
    prompt_k: list[Tensor]
    prompt_v: list[Tensor]
    own_k: list[Tensor] = field(default_factory=list)
    own_v: list[Tensor] = field(default_factory=list)
    refilled: bool = False
    first: Tensor = field(init=False)
    count: Tensor = field(init=False)
    order: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.first, self.count, self.order = self._extents()

    @staticmethod
    def of(
        kept: list[tuple[Tensor, Tensor]], lengths: list[int], rows: list[int], width: int, opening: int = 0
    ) -> GroupCache:
        """From the keys and values [KV, N, D] of packed prompts, a layer each.

        Args:
            lengths: tokens of each prompt. rows: rows of each prompt. width: T, completion tokens at most.
            opening: the first so many packed tokens are the beginning of every prompt.
        """
        k = kept[0][0]
        index = _padded(lengths, k.device, opening)
        prompt_k = [_pad(keys, index) for keys, _ in kept]
        prompt_v = [_pad(values, index) for _, values in kept]
        count = torch.tensor(rows, device=k.device)
        prompt_of = torch.arange(len(rows), device=k.device).repeat_interleave(count)
        longest = max(lengths)
        size = torch.tensor(lengths, dtype=torch.int32, device=k.device)
        hidden = torch.arange(longest, device=k.device) >= size[:, None] if min(lengths) < longest else None
        cache = GroupCache(prompt_of, prompt_of, 0, size, hidden, prompt_k, prompt_v)
        cache._place()
        empty = lambda x: x.new_zeros(sum(rows), x.shape[0], width, x.shape[2])  # noqa: E731
        cache.own_k = [empty(keys) for keys, _ in kept]
        cache.own_v = [empty(values) for _, values in kept]
        return cache

    def _place(self) -> None:
        """Lay the rows out side by side, prompt by prompt."""
        self.first, self.count, self.order = self._extents()
        self.slots = int(self.count.max())
        within = torch.arange(len(self.prompt_of), device=self.count.device) - self.first[self.prompt_of]
        self.slot = self.prompt_of * self.slots + within

    def _extents(self) -> tuple[Tensor, Tensor, Tensor]:
        count = torch.bincount(self.prompt_of, minlength=len(self.lengths))
        return (count.cumsum(0) - count).int(), count.int(), self.prompt_of.argsort(stable=True)

    def seat(self, row: Tensor, group_size: int) -> None:
        """These rows of the whole generation, no two alike, in place: captured graphs hold the addresses.

        A row's place in the rectangle is its number in the whole generation.
        """
        self.slot.copy_(row)
        self.prompt_of.copy_(row // group_size)
        for mine, new in zip((self.first, self.count, self.order), self._extents()):
            mine.copy_(new)

    @property
    def rows(self) -> int:
        return len(self.prompt_of)

    @property
    def full(self) -> bool:
        """Every prompt has the same number of rows."""
        return self.rows == len(self.prompt_k[0]) * self.slots

    def keep(self, rows: Tensor, used: int) -> None:
        """Only these rows stay, with what they wrote at the first `used` places; prompts without rows leave."""
        self.prompt_of = self.prompt_of[rows]
        prompts, self.prompt_of = self.prompt_of.unique(return_inverse=True)
        for buffers in (self.own_k, self.own_v):
            for i, old in enumerate(buffers):
                buffers[i] = old.new_zeros(len(rows), *old.shape[1:])
                buffers[i][:, :, :used] = old[rows, :, :used]
        if len(prompts) < len(self.prompt_k[0]):
            self.prompt_k = [x[prompts] for x in self.prompt_k]
            self.prompt_v = [x[prompts] for x in self.prompt_v]
            self.lengths = self.lengths[prompts]
            self.hidden = None if self.hidden is None else self.hidden[prompts]
        self._place()


def _padded(lengths: list[int], device: torch.device, opening: int = 0) -> Tensor:
    """[P, longest] packed index of each prompt's tokens, its last one repeated to the end."""
    size = torch.tensor(lengths)
    within = torch.arange(int(size.max()))[None].minimum(size[:, None] - 1)
    own = size - opening
    return torch.where(within < opening, within, (own.cumsum(0) - own)[:, None] + within).to(device)


def _pad(x: Tensor, index: Tensor) -> Tensor:
    """[KV, N, D] of packed prompts -> [P, KV, longest, D]; what lies in the padding is never looked at."""
    return x[:, index].transpose(0, 1).contiguous()


class Step:
    """The layout argument of one decode step: every row feeds one token, at the same place of its completion.

    Args:
        cache: written at `place`, read up to it.
        place: index of the fed token in its completion: a number, or a tensor [1] inside a captured graph.
        width: with a tensor, how many places are read (those after `place` are hidden).
    """

    def __init__(self, cache: GroupCache, place: int | Tensor, width: int = 0) -> None:
        self.cache, self.place = cache, place
        self.width = place + 1 if isinstance(place, int) else width
        later = None if isinstance(place, int) else torch.arange(width, device=place.device) > place
        self.later = later

    def attend(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """query [1, H, R, D], key and value [1, KV, R, D] -> [1, R, H, D]."""
        layer: Any = module.layer_idx
        held = self.cache.own_k[layer].shape  # kernels read memory by this shape
        if (key.shape[1], key.shape[3]) != (held[1], held[3]) or value.shape != key.shape:
            raise ValueError(f"layer {layer} gives keys {tuple(key.shape)} where its prompt's are {tuple(held)}")
        if decoding.fits(query, key, self.place) and _fused_works(
            query.device, query.dtype, query.shape[1], key.shape[1], query.shape[3]
        ):
            return self.fused(layer, query, key, value, scaling)
        return self.plain(layer, query, key, value, scaling)

    def fused(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """`attend` by kernels, which on a GPU read the place from the device."""
        cache = self.cache
        prompts = decoding.Prompts(
            cache.prompt_k[layer],
            cache.prompt_v[layer],
            cache.lengths,
            cache.first,
            cache.count,
            cache.slots,
            cache.order if cache.refilled else None,
        )
        return decoding.attend(query, key, value, prompts, cache.own_k[layer], cache.own_v[layer], self.place, scaling)

    def plain(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """`attend` by matrix products and one softmax over prompt and own keys."""
        cache = self.cache
        kv, (heads, rows, size) = key.shape[1], query.shape[1:]
        self._write(cache.own_k[layer], key[0])
        self._write(cache.own_v[layer], value[0])
        q = query[0].transpose(0, 1).reshape(rows, kv, heads // kv, size) * scaling
        own_k, own_v = cache.own_k[layer][:, :, : self.width], cache.own_v[layer][:, :, : self.width]
        own = (q @ own_k.transpose(2, 3)).float()
        if self.later is not None:
            own = own.masked_fill(self.later, float("-inf"))
        prefix = self._prefix_scores(q, cache.prompt_k[layer])
        weight = torch.cat([prefix, own], -1).softmax(-1).to(value.dtype)
        out = self._prefix_values(weight[..., : prefix.shape[-1]], cache.prompt_v[layer])
        out = out + weight[..., prefix.shape[-1] :] @ own_v
        return out.reshape(1, rows, heads, size)

    def _write(self, buffer: Tensor, x: Tensor) -> None:
        """x [KV, R, D] into [R, KV, T, D] at `place`."""
        x = x.transpose(0, 1)
        if isinstance(self.place, int):
            buffer[:, :, self.place] = x
        else:
            buffer.index_copy_(2, self.place, x[:, :, None])

    def _gather(self, x: Tensor) -> Tensor:
        """[R, KV, M, X] -> [P, KV, S M, X]: the rows of a prompt side by side, so that its keys are read once."""
        cache, (_, kv, m, last) = self.cache, x.shape
        count = len(cache.prompt_k[0])
        if not cache.full:
            x = x.new_zeros(count * cache.slots, kv, m, last).index_copy_(0, cache.slot, x)
        return x.view(count, cache.slots, kv, m, last).transpose(1, 2).reshape(count, kv, cache.slots * m, last)

    def _ungather(self, x: Tensor, m: int) -> Tensor:
        """The inverse of `_gather`."""
        cache, (count, kv, _, last) = self.cache, x.shape
        x = x.view(count, kv, cache.slots, m, last).transpose(1, 2).reshape(count * cache.slots, kv, m, last)
        return x if cache.full else x.index_select(0, cache.slot)

    def _prefix_scores(self, q: Tensor, keys: Tensor) -> Tensor:
        """[R, KV, M, Lp] float32 scores of q [R, KV, M, D] against the row's prompt."""
        scores = (self._gather(q) @ keys.transpose(2, 3)).float()
        if self.cache.hidden is not None:
            scores = scores.masked_fill(self.cache.hidden[:, None, None], float("-inf"))
        return self._ungather(scores, q.shape[2])

    def _prefix_values(self, weight: Tensor, values: Tensor) -> Tensor:
        """[R, KV, M, D] from weights [R, KV, M, Lp]."""
        return self._ungather(self._gather(weight) @ values, weight.shape[2])


class Uneven(Step):
    """A step of rows that are at places of their own.

    Args:
        places: [R] of the fed tokens. width: how many places are read; above every place.
    """

    def __init__(self, cache: GroupCache, places: Tensor, width: int) -> None:
        self.cache, self.place, self.width = cache, places, width

    @functools.cached_property
    def later(self) -> Tensor:
        """[R, 1, 1, W] bool: places that are still to come."""
        return (torch.arange(self.width, device=self.place.device) > self.place[:, None])[:, None, None]

    def _write(self, buffer: Tensor, x: Tensor) -> None:
        rows = torch.arange(len(buffer), device=buffer.device)
        buffer[rows, :, self.place] = x.transpose(0, 1)


@functools.cache
def _fused_works(device: torch.device, dtype: torch.dtype, heads: int, key_heads: int, size: int) -> bool:
    """A made-up step of five rows of two prompts by both ways."""
    generator = torch.Generator().manual_seed(0)
    make = lambda *shape: torch.randn(*shape, generator=generator).to(device, dtype)  # noqa: E731
    lengths, rows, place = [150, 30], [3, 2], 4
    kept, own = [(make(key_heads, 180, size), make(key_heads, 180, size))], make(2, 5, key_heads, 9, size)
    new = (make(1, heads, 5, size), make(1, key_heads, 5, size), make(1, key_heads, 5, size))

    def made(fused: bool) -> list[Tensor]:
        found = []
        for uneven in (False, True) if device.type == "cuda" else (False,):
            cache = GroupCache.of(kept, lengths, rows, width=9)
            cache.own_k[0][:], cache.own_v[0][:] = own[0], own[1]
            cache.refilled = uneven
            if uneven:  # places of their own, and rows in another order
                cache.seat(torch.tensor([4, 1, 0, 3, 2], device=device), 3)
            step = Uneven(cache, torch.tensor([4, 2, 0, 7, 1], device=device), 9) if uneven else Step(cache, place)
            out = (step.fused if fused else step.plain)(0, *new, size**-0.5)
            found += [out, cache.own_k[0], cache.own_v[0]]
        return found

    return agrees("decoding", lambda: made(True), lambda: made(False))
