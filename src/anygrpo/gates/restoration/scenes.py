"""Clean pictures that are there twice, by their bytes: they stay on one side of the split."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from torch import Tensor

from anygrpo.gates.restoration.listing import Part
from anygrpo.gates.restoration.photographs import Picture
from anygrpo.spoken import Text

log = logging.getLogger("anygrpo")


def one_scene_each(pictures: list[Picture]) -> list[Picture]:
    """No picture trained on and tested on under two names: of clean files with equal bytes,

    - those that their sets leave to the split become one scene,
    - and go where a set with a side has them (to "test" where two sides have them), the rest of their scene with them,
    - and where the sets themselves train on one and test on it, that is told.
    """
    alike = [same for same in _alike(pictures) if len(same) > 1]
    joined: dict[str, str] = {}
    sides: dict[str | Path | Tensor, Part] = {}  # by scene, and by file
    for same in alike:
        first, *others = [_root(joined, p.scene) for p in same if p.part == "split"] or [""]
        joined |= {other: first for other in others if other != first}
    for p, said in ((p, {q.part for q in same}) for same in alike for p in same if p.part == "split"):
        scene = _root(joined, p.scene)
        if said != {"split"}:
            sides[p.clean] = "test" if "test" in said else "train"
            sides[scene] = "test" if "test" in (sides[p.clean], sides.get(scene)) else "train"
    _tell_both([same for same in alike if {"train", "test"} <= {p.part for p in same}])
    told = [replace(p, scene=_root(joined, p.scene)) for p in pictures]
    free = lambda p: sides.get(p.clean, sides.get(p.scene, "split"))  # noqa: E731
    return [replace(p, part=free(p)) if p.part == "split" else p for p in told]


def _alike(pictures: list[Picture]) -> list[list[Picture]]:
    """Pictures by the bytes of their clean files. Files of a size of their own, and one path, are not read for it."""
    by_path: dict[Path, list[Picture]] = {}
    for p in pictures:
        if isinstance(p.clean, Path):
            by_path.setdefault(p.clean, []).append(p)
    stats = {path: path.stat() for path in by_path}
    sizes = Counter(stat.st_size for stat in stats.values())
    found: dict[object, list[Picture]] = {}
    for path, same in by_path.items():
        stat = stats[path]
        alone = sizes[stat.st_size] == 1
        key = path if alone else _digest(path.absolute(), stat.st_mtime_ns, stat.st_size)
        found.setdefault(key, []).extend(same)
    return list(found.values())


@lru_cache(maxsize=1 << 18)
def _digest(path: Path, changed: int, size: int) -> bytes:
    """Of a file as it was then, so that tasks of a process (a sweep's, both sides of a comparison) read it once."""
    del changed, size
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _tell_both(both: list[list[Picture]]) -> None:
    if not both:
        return
    one, other = (next(p.clean for p in both[0] if p.part == part) for part in ("train", "test"))
    n = len(both)
    told = Text(
        f"{n} pictures are there to train on and to test on, as {one} and {other}",
        f"{n} 张图像既用于训练又用于测试，如 {one} 与 {other}",
    )
    log.warning("%s", told.said())


def _root(joined: dict[str, str], scene: str) -> str:
    while scene in joined:
        scene = joined[scene]
    return scene
