"""The samples of a restoration task: which crop of which picture is degraded how, as pure functions of the seed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import torch
from torch import Generator, Tensor

from anygrpo.core.task import epoch_indices
from anygrpo.gates.restoration.degradations import degrade, reduced, turned, uniform
from anygrpo.gates.restoration.photographs import Picture
from anygrpo.gates.restoration.recent import Recent
from anygrpo.gates.restoration.settings import DegradationConfig, RestorationConfig

Prompt = dict[str, Any]
"""{"degraded": [3, h, w], "clean": [3, H, W], "degradation", "strength", "picture", ...}; H = h x task.scale."""
HELD_OUT = 2_000_000_011
"""Offset of the seeds of held-out degradations: never one of the training pool's."""
FILES, SAMPLES = 2**29, 2**29
"""Bytes of decoded files, and of samples made of them, that are kept."""
WAYS = {"none": 1, "flips": 4, "all": 8}
DRAWS = 1000
"""Samples after which every set has had its share exactly."""

Kind = DegradationConfig | int
"""A degradation that is made, or the number of a pair's degraded picture."""


class Pool:
    """Samples of pictures by number: number -> (picture, degradation, crop, strength).

    Args:
        pictures: of one side of the split.
        config: the task's section.
        seed: of crops, strengths and degradations.
    """

    def __init__(self, pictures: list[Picture], config: RestorationConfig, seed: int) -> None:
        self.pictures, self.config, self.seed = pictures, config, seed
        self.cells: list[tuple[Picture, Kind]] = [(p, kind) for p in pictures for kind in self.kinds(p)]
        self._files, self._samples = Recent(FILES), Recent(SAMPLES)

    def __len__(self) -> int:
        return len(self.cells) * self.config.crops

    def kinds(self, picture: Picture) -> Sequence[Kind]:
        if picture.degraded:
            return range(len(picture.degraded))
        return self.config.every_set()[picture.group].degradations or self.config.degradations

    def group(self, index: int) -> int:
        """Number of the set that a sample is of."""
        return self.cells[index // self.config.crops][0].group

    def crop(self, index: int) -> Prompt:
        """The training sample at `index`."""
        return self._samples(index, lambda: self._cropped(index))

    def _cropped(self, index: int) -> Prompt:
        cell, crop = divmod(index, self.config.crops)
        picture, kind = self.cells[cell]
        seed = self.seed * 1_000_003 + index
        g = torch.Generator().manual_seed(seed)
        side, step = self.config.patch, self.config.scale
        y, x = (step * int(torch.randint((n - side) // step + 1, (), generator=g)) for n in picture.size)
        ways = WAYS[self.config.augment]
        way = int(torch.randint(ways, (), generator=g)) if ways > 1 else 0
        return self._prompt(picture, kind, (y, x, side, side), way, seed, g) | {"crop": crop}

    def whole(self, cell: int, seed: int) -> Prompt:
        """A picture, whole, in one degradation drawn from `seed`."""
        picture, kind = self.cells[cell]
        step = self.config.scale
        height, width = (side // step * step for side in picture.size)
        make = lambda: self._prompt(  # noqa: E731
            picture, kind, (0, 0, height, width), 0, seed, torch.Generator().manual_seed(seed)
        )
        return self._samples((cell, seed), make)

    def _prompt(
        self, picture: Picture, kind: Kind, box: tuple[int, int, int, int], way: int, seed: int, g: Generator
    ) -> Prompt:
        if isinstance(kind, int):
            one = self.config.every_set()[picture.group]
            name, strength = one.name if one.layout is None or one.name != "pairs" else one.layout, 0.0
            clean = turned(_cut(self._read(picture, None), box), way)
            small = tuple(n // self.config.scale for n in box)
            degraded = turned(_cut(self._read(picture, kind), small), way)
        else:
            name, strength = kind.name, uniform(kind.low, kind.high, g)
            clean, degraded = self._made(picture, kind.name, strength, box, way, seed)
        told = {"degradation": name, "strength": round(strength, 4), "picture": picture.name}  # for readers
        told |= {"scene": picture.scene} if picture.scene not in ("", picture.name) else {}
        return {"degraded": degraded, "clean": clean} | told

    def _made(
        self, picture: Picture, name: str, strength: float, box: tuple[int, int, int, int], way: int, seed: int
    ) -> tuple[Tensor, Tensor]:
        """Clean and degraded: what lies around the crop is degraded with it and cut away."""
        y, x, height, width = box
        m = -(-self.config.margin // self.config.scale) * self.config.scale
        top, left = min(m, y), min(m, x)
        around = (y - top, x - left, height + top + m, width + left + m)  # what lies beyond the picture is not there
        wide = _cut(self._read(picture, None), around)
        clean = turned(wide[:, top : top + height, left : left + width], way)
        left = wide.shape[2] - width - left if way & 1 else left
        top = wide.shape[1] - height - top if way & 2 else top
        if way & 4:
            top, left, height, width = left, top, width, height
        bad = degrade(turned(wide, way), name, strength, seed)[:, top : top + height, left : left + width]
        return clean, reduced(bad, self.config.scale)

    def _read(self, picture: Picture, which: int | None) -> Tensor:
        source = picture.clean if which is None else picture.degraded[which]
        key = id(source) if isinstance(source, Tensor) else (source, picture.longest)
        return self._files(key, lambda: picture.read(which))


def _cut(x: Tensor, box: tuple[int, ...]) -> Tensor:
    y, z, height, width = box
    return x[:, y : y + height, z : z + width]


class HeldOut(Sequence[Prompt]):
    """Every held-out picture in every degradation, made when it is asked for. Pairs come once, others `draws` times."""

    def __init__(self, pool: Pool, draws: int) -> None:
        self.pool = pool
        first: dict[int, int] = {}
        self.places: list[tuple[int, int]] = []
        number = {id(p): i for i, p in enumerate(pool.pictures)}
        for k, (cell, (picture, kind)) in itertools.product(range(draws), enumerate(pool.cells)):
            i = number[id(picture)]
            if k and isinstance(kind, int):
                continue
            j = cell - first.setdefault(i, cell)
            self.places.append((cell, HELD_OUT + 1_000_003 * k + 1009 * i + j))

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, place: int) -> Prompt: ...
    @overload
    def __getitem__(self, place: slice) -> list[Prompt]: ...
    def __getitem__(self, place: int | slice) -> Prompt | list[Prompt]:
        if isinstance(place, slice):
            return [self.pool.whole(cell, seed) for cell, seed in self.places[place]]
        cell, seed = self.places[place]
        return self.pool.whole(cell, seed)

    def __iter__(self) -> Iterator[Prompt]:
        return (self[i] for i in range(len(self)))


def mixed(groups: dict[int, list[int]], shares: dict[int, float], step: int, count: int, seed: int) -> list[int]:
    """`count` samples of the `step`-th batch, sets drawn by their shares.

    In every `DRAWS` samples each set has its share exactly, in a random order; each set is passed through in epochs of
    its own. A pure function of its arguments.

    Args:
        groups: set -> numbers of its samples.
        shares: set -> weight.
    """
    names = sorted(groups)
    total = sum(shares[name] for name in names)
    bounds = [round(DRAWS * sum(shares[n] for n in names[:i]) / total) for i in range(len(names) + 1)]
    each = {name: bounds[i + 1] - bounds[i] for i, name in enumerate(names)}
    slots = [name for name in names for _ in range(each[name])]
    rank = [i for name in names for i in range(each[name])]
    out = []
    for k in range(step * count, (step + 1) * count):
        block, place = divmod(k, DRAWS)
        order = torch.randperm(DRAWS, generator=torch.Generator().manual_seed(seed * 7_368_787 + block))
        slot = int(order[place])
        name = slots[slot]
        nth = block * each[name] + rank[slot]
        out.append(groups[name][epoch_indices(len(groups[name]), nth, 1, seed * 31 + name)[0]])
    return out


def by_group(kept: list[int], group: Callable[[int], int]) -> dict[int, list[int]]:
    """Samples by the set that they are of."""
    out: dict[int, list[int]] = {}
    for index in kept:
        out.setdefault(group(index), []).append(index)
    return out
