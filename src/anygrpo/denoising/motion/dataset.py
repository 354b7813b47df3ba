"""HumanML3D and KIT-ML as they are published: folders, splits, texts, Mean and Std.

    FOLDER/new_joint_vecs/ID.npy [T, 263 or 251]   texts/ID.txt   Mean.npy   Std.npy   train.txt val.txt test.txt ...

A text line is `caption#word/POS word/POS ...#from#to` in seconds; 0.0#0.0 is the whole clip, anything else a part of it
that becomes an item of its own. Items of 40 (KIT: 24) up to 199 frames are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from anygrpo.denoising.motion.features import Scaler
from anygrpo.errors import DataError
from anygrpo.spoken import Text

LONGEST = 200
UNIT = 4
MIXED = 0.01
"""Std of the yaw step above which Mean and Std are the data's: the evaluators' own set has .0005 there (25 times less),
and mixing the two gives plausible wrong numbers."""


@dataclass(frozen=True)
class Kind:
    """What differs between the two sets: numbers a frame, frames a second, fewest frames."""

    name: str
    size: int
    fps: float
    shortest: int


KINDS = {263: Kind("HumanML3D", 263, 20.0, 40), 251: Kind("KIT-ML", 251, 12.5, 24)}


@dataclass(frozen=True)
class Caption:
    """A description and its words with their parts of speech ("walks/VERB")."""

    text: str
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class Item:
    """A clip, or the part of one that some captions describe.

    Attributes:
        name: the file's ID, with ":from:to" (frames) for a part.
        start, frames: where it lies in the file.
    """

    name: str
    file: Path
    start: int
    frames: int
    captions: tuple[Caption, ...]

    def features(self) -> Tensor:
        """[frames, size], as in the file (not normalised)."""
        return torch.from_numpy(np.load(self.file)[self.start : self.start + self.frames]).float()

    @property
    def length(self) -> int:
        """Frames that a sample of it has: a multiple of four, below two hundred."""
        return self.frames // UNIT * UNIT


@dataclass(frozen=True)
class Dataset:
    """One split.

    Attributes:
        split: the file that was read, with how many of its IDs gave items.
        left_out: ID -> why.
    """

    kind: Kind
    split: str
    items: list[Item]
    scaler: Scaler
    left_out: dict[str, str]


def load(folder: Path, split: str) -> Dataset:
    """The items of FOLDER/SPLIT.txt.

    Raises:
        DataError: a folder, split, Mean or Std is missing or has another shape; no item is left.
    """
    scaler = read_scaler(folder)
    kind = KINDS[len(scaler.mean)]
    file = folder / f"{split}.txt"
    if not file.is_file():
        known = sorted(f.stem for f in folder.glob("*.txt"))
        raise DataError(
            Text(f"no split {split!r} in {folder}", f"{folder} 中没有划分 {split!r}"),
            Text(f"one of {', '.join(known) or 'none'}", f"可用：{', '.join(known) or '无'}"),
        )
    items: list[Item] = []
    left_out: dict[str, str] = {}
    for name in file.read_text().split():
        made = _items(folder, name, kind)
        if isinstance(made, str):
            left_out[name] = made
        else:
            items += made
    if not items:
        reasons = ", ".join(f"{n}: {why}" for n, why in list(left_out.items())[:3])
        raise DataError(
            Text(f"{file} gives no item ({reasons})", f"{file} 没有给出任何条目（{reasons}）"),
            Text("the folder as published: new_joint_vecs, texts", "请按发布时的文件夹：new_joint_vecs、texts"),
        )
    return Dataset(kind, f"{file} ({len(items)} items)", items, scaler, left_out)


def read_scaler(folder: Path) -> Scaler:
    """Mean.npy and Std.npy of the data.

    Raises:
        DataError: missing, of another size, or the evaluators' set.
    """
    try:
        mean, std = (torch.from_numpy(np.load(folder / f"{name}.npy")).float() for name in ("Mean", "Std"))
    except (OSError, ValueError) as error:
        raise DataError(
            Text(f"{folder}: {error}", f"{folder}：{error}"),
            Text("a data set as published has Mean.npy and Std.npy", "按发布的数据集应有 Mean.npy 和 Std.npy"),
        ) from error
    if mean.shape != std.shape or len(mean) not in KINDS:
        raise DataError(
            Text(
                f"{folder}: Mean {tuple(mean.shape)}, Std {tuple(std.shape)}",
                f"{folder}：Mean 为 {tuple(mean.shape)}，Std 为 {tuple(std.shape)}",
            ),
            Text("263 (HumanML3D) or 251 (KIT)", "应为 263（HumanML3D）或 251（KIT）"),
        )
    if len(mean) == 263 and float(std[0]) < 0.1 * MIXED:
        raise DataError(
            Text(
                f"{folder}/Std.npy has {float(std[0]):.6f} for the yaw step: the evaluators' own "
                "set, 25 times too small",
                f"{folder}/Std.npy 的偏航步为 {float(std[0]):.6f}：这是评测器自用的一套，小了 25 倍",
            ),
            Text(
                "the data's Mean.npy and Std.npy (about 0.0128 there)",
                "请用数据自己的 Mean.npy 和 Std.npy（此处约 0.0128）",
            ),
        )
    return Scaler(mean, std.clamp(min=1e-8))


def _items(folder: Path, name: str, kind: Kind) -> list[Item] | str:
    """The items of one ID, or why there is none."""
    file, text = folder / "new_joint_vecs" / f"{name}.npy", folder / "texts" / f"{name}.txt"
    try:
        shape = np.load(file, mmap_mode="r").shape
        lines = text.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        return str(error)
    if len(shape) != 2 or shape[1] != kind.size:
        return f"shape {shape}, expected [T, {kind.size}]"
    whole, parts = [], {}
    for line in lines:
        parsed = parse_line(line)
        if parsed is None:
            continue
        caption, start, end = parsed
        if start == 0.0 and end == 0.0:
            whole.append(caption)
        else:
            parts.setdefault((int(start * kind.fps), int(end * kind.fps)), []).append(caption)
    made = [Item(name, file, 0, shape[0], tuple(whole))] if whole else []
    for (start, end), captions in parts.items():
        frames = min(end, shape[0]) - start
        made.append(Item(f"{name}:{start}:{end}", file, start, frames, tuple(captions)))
    kept = [item for item in made if kind.shortest <= item.frames < LONGEST]
    return kept or (f"{shape[0]} frames" if made else "no caption")


def parse_line(line: str) -> tuple[Caption, float, float] | None:
    """(caption, from, to) of a text line in seconds, "nan" read as 0; None for a line that is none."""
    words = line.strip().split("#")
    if len(words) != 4 or not words[0].strip():
        return None
    try:
        start, end = (float(w) for w in words[2:])
    except ValueError:
        return None
    start, end = (0.0 if math.isnan(x) else x for x in (start, end))
    return Caption(words[0].strip(), tuple(words[1].split())), start, end
