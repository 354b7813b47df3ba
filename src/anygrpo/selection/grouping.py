"""Rows of a batch by their prompt, so that each prompt is encoded once and its rows share its items."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Grouping:
    """n rows laid out in cells of equal size, each cell for rows of one prompt.

    A prompt with more rows than fit takes several cells, so that n rows of u prompts need less than 2 (n + u) places
    however uneven the groups are; groups of equal size need exactly n.

    Attributes:
        first: [u] one row of each prompt, in order of appearance.
        prompt: [cells] whose rows a cell holds; None: cell i is prompt i's.
        place: [n] where each row is, counted over all cells; None: rows lie in order and fill all places.
        shape: (cells, places in each).
    """

    first: Tensor
    prompt: Tensor | None
    place: Tensor | None
    shape: tuple[int, int]

    @staticmethod
    def of(keys: Tensor) -> Grouping:
        """Rows [n] with equal keys have the same prompt."""
        n, device = len(keys), keys.device
        _, group, counts = keys.unique(return_inverse=True, return_counts=True)
        order = group.argsort(stable=True)
        begin = counts.cumsum(0) - counts
        first = order[begin]
        by_appearance = first.argsort()
        number = torch.empty_like(by_appearance)
        number[by_appearance] = torch.arange(len(first), device=device)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(n, device=device) - begin.repeat_interleave(counts)
        size = -(-n // len(first))
        cells = -(-counts[by_appearance] // size)
        cell = (cells.cumsum(0) - cells)[number[group]] + rank // size
        place, total = cell * size + rank % size, int(cells.sum())
        prompt = None if total == len(first) else torch.arange(len(first), device=device).repeat_interleave(cells)
        plain = n == total * size and torch.equal(place, torch.arange(n, device=device))
        return Grouping(first[by_appearance], prompt, None if plain else place, (total, size))

    def cells(self, x: Tensor) -> Tensor:
        """What belongs to prompts [u, ...] as it belongs to cells."""
        return x if self.prompt is None else x[self.prompt]

    def spread(self, x: Tensor, fill: int) -> Tensor:
        """Rows [n, ...] into their places [cells, size, ...]; `fill` where there is no row."""
        if self.place is None:
            return x.unflatten(0, self.shape)
        out = x.new_full((self.shape[0] * self.shape[1], *x.shape[1:]), fill)
        out[self.place] = x
        return out.unflatten(0, self.shape)

    def rows(self, x: Tensor) -> Tensor:
        """Places [cells, size, ...] back to rows [n, ...]."""
        flat = x.flatten(0, 1)
        return flat if self.place is None else flat[self.place]
