"""Samples as trees of tensors, and functions of every leaf; a leaf that many rows share is held once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Tree = Any
"""Nested dicts whose leaves are tensors, lists of plain objects (one per prompt or per row), or `Shared`."""


@dataclass(frozen=True, eq=False)
class Shared:
    """A leaf of which rows hold but an index, so that what they share (their prompt's features, say) is held once
    however many rows there are. Functions of rows act on the index.

    Attributes:
        values: tensors [U, ...] by name, one entry a prompt.
        index: [P, G] or [n] int64: which entry each row has.
    """

    values: dict[str, Tensor]
    index: Tensor

    def joined(self, other: Shared, cat: Callable[[Tensor, Tensor], Tensor]) -> Shared:
        """The rows of both; entries of different sizes are padded at the end with zeros (False)."""
        first = len(next(iter(self.values.values())))
        values = {name: torch.cat([grown(x, y), grown(y, x)]) for name, x, y in self._pairs(other)}
        return Shared(values, cat(self.index, other.index + first))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Shared) or not torch.equal(self.index, other.index):
            return False
        return all(torch.equal(x, y) for _, x, y in self._pairs(other))

    def _pairs(self, other: Shared) -> list[tuple[str, Tensor, Tensor]]:
        return [(name, x, other.values[name]) for name, x in self.values.items()]


def tree_map(fn: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    """Apply `fn` to every tensor leaf; other leaves (None, numbers, strings) pass through."""
    if isinstance(tree, dict):
        return {key: tree_map(fn, value) for key, value in tree.items()}
    if isinstance(tree, Shared):
        return Shared(tree.values, fn(tree.index))
    return fn(tree) if isinstance(tree, Tensor) else tree


def tree_map2(fn: Callable[[Tensor, Tensor], Tensor], a: Tree, b: Tree) -> Tree:
    """Apply `fn` to the tensor leaves of two trees of the same form and join shared ones; others are the first's."""
    if isinstance(a, dict):
        return {key: tree_map2(fn, value, b[key]) for key, value in a.items()}
    if isinstance(a, Shared):
        return a.joined(b, fn)
    return fn(a, b) if isinstance(a, Tensor) else a


def on(tree: Tree, device: torch.device) -> Tree:
    """Every tensor leaf on `device`: where a policy computes, whoever hands it rows."""
    return tree_map(lambda x: x.to(device), tree)


def devices(tree: Tree) -> Tree:
    """The kind of device ("cuda") of every tensor leaf, those of a shared one by name."""
    if isinstance(tree, dict):
        return {key: devices(value) for key, value in tree.items()}
    if isinstance(tree, Shared):
        return {"values": devices(tree.values), "index": tree.index.device.type}
    return tree.device.type if isinstance(tree, Tensor) else None


def placed(tree: Tree, where: Tree, device: torch.device) -> Tree:
    """A tree that has been on the CPU, back on `device` leaf by leaf: those that `where` (of `devices`) had elsewhere
    than on a CPU."""
    if isinstance(tree, dict):
        return {key: placed(value, where[key], device) for key, value in tree.items()}
    if isinstance(tree, Shared):
        return Shared(placed(tree.values, where["values"], device), placed(tree.index, where["index"], device))
    return tree.to(device) if isinstance(tree, Tensor) and where != "cpu" else tree


def grown(x: Tensor, like: Tensor) -> Tensor:
    """`x` padded with zeros at the end of every dimension but the first, up to the larger size of the two."""
    pads = [n for i in range(x.dim() - 1, 0, -1) for n in (0, max(0, like.shape[i] - x.shape[i]))]
    return torch.nn.functional.pad(x, pads) if any(pads) else x
