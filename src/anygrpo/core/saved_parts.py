"""What several ranks write of one checkpoint, and whole tensors of it again.

Weights go whole, dealt over the ranks, into files with an index, as transformers and diffusers write and read them:
`model-00001-of-00002.safetensors`, ..., `model.safetensors.index.json`. The optimizer's moments stay in pieces: each
rank writes `parts/rank_00000.safetensors`, and `rank_00000.json` with their names, offsets and the wholes' shapes.
Either is read one tensor at a time, by any number of processes; none of them needs to have joined the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.tensor_files import read_json, read_tensor, write_tensors
from anygrpo.errors import DataError
from anygrpo.spoken import Text

FOLDER = "parts"
SCHEMA = 2
INDEX = ".index.json"
WEIGHT, MOMENT = "weight/", "moment/"

# -- weights, whole, in several files ---------------------------------------------------------------------------------


def dealt(sizes: Mapping[str, int], ranks: int, split: bool = True) -> list[list[str]]:
    """The names that each rank writes, the largest first to the one with least; without `split` the first writes all.

    Args:
        sizes: name -> bytes; the same on every rank.
    """
    out: list[list[str]] = [[] for _ in range(ranks)]
    if not split:
        out[0] = list(sizes)
        return out
    held = [0] * ranks
    for name in sorted(sizes, key=lambda n: -sizes[n]):
        least = held.index(min(held))
        out[least].append(name)
        held[least] += sizes[name]
    return [sorted(names) for names in out]


def shard_name(file: str, number: int, of: int) -> str:
    """The library's name of one file of several: "model-00001-of-00002.safetensors"."""
    stem, _, ending = file.rpartition(".")
    return f"{stem}-{number + 1:05d}-of-{of:05d}.{ending}"


def write_index(folder: Path, file: str, shares: Sequence[Sequence[str]], size: int) -> None:
    """FILE.index.json: which file holds which weight; `size`: bytes of all."""
    table = {n: shard_name(file, i, len(shares)) for i, names in enumerate(shares) for n in names}
    text = json.dumps({"metadata": {"total_size": size}, "weight_map": dict(sorted(table.items()))}, indent=2)
    (folder / (file + INDEX)).write_text(text, encoding="utf-8")


def shards(index: Path) -> dict[str, Path]:
    """name -> file of what an index names.

    Raises:
        DataError: malformed, or it names files outside of its folder, or that are not there.
    """
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(f, str) and f == Path(f).name for f in table.values()):
        raise DataError(
            Text(f"{index} is no index of weights in its own folder", f"{index} 不是它所在文件夹中权重的索引"),
            Text("take another checkpoint", "请用另一个检查点"),
        )
    if lacking := sorted({f for f in table.values() if not (index.parent / f).is_file()}):
        raise DataError(
            Text(f"{index} names {lacking[0]}, which is not there", f"{index} 提到 {lacking[0]}，但没有这个文件"),
            Text("take another checkpoint", "请用另一个检查点"),
        )
    return {name: index.parent / file for name, file in table.items()}


class Shards(Mapping[str, Tensor]):
    """Tensors of several files, read when asked for."""

    def __init__(self, index: Path) -> None:
        self._files = shards(index)

    def __getitem__(self, name: str) -> Tensor:
        return read_tensor(self._files[name], name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


# -- in pieces --------------------------------------------------------------------------------------------------------


def write(folder: Path, moments: Mapping[str, Mapping[str, Tensor]], rank: int = 0) -> None:
    """Every rank calls it with its shards of the moments; what all ranks hold whole is written by the first."""
    pieces: dict[str, Tensor] = {}
    index: dict[str, Any] = {}
    for name, tensor in ((f"{MOMENT}{name}/{key}", x) for name, one in moments.items() for key, x in one.items()):
        for offset, piece in _pieces(tensor, rank):
            index[name] = {
                "shape": list(tensor.shape), "offset": offset, "size": list(piece.shape), "key": str(len(pieces))
            }  # fmt: skip
            pieces[name] = piece
    (folder / FOLDER).mkdir(exist_ok=True)
    file = folder / FOLDER / f"rank_{rank:05d}"
    write_tensors(file.with_suffix(".safetensors"), pieces, numbered=True)
    text = json.dumps({"schema": SCHEMA, "tensors": index})
    file.with_suffix(".json").write_text(text, encoding="utf-8")


def _pieces(tensor: Any, rank: int) -> list[tuple[list[int], Tensor]]:
    """(offset, values) of what this rank writes: its shard, or a whole tensor if it is the first."""
    if not hasattr(tensor, "to_local"):
        return [([0] * tensor.dim(), tensor)] if rank == 0 else []
    local = tensor.to_local()
    chunks = tensor.__create_chunk_list__()  # what torch's own checkpoints ask a sharded tensor for
    return [(list(c.offsets), local) for c in chunks if local.numel() or tensor.numel() == 0][:1]


class Renamed(Mapping[str, Tensor]):
    """Tensors under other names, read when asked for."""

    def __init__(self, found: Mapping[str, Tensor], table: Mapping[str, str]) -> None:
        self._found, self._table = found, table

    def __getitem__(self, name: str) -> Tensor:
        return self._found[self._table[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


class Parts(Mapping[str, Tensor]):
    """Whole tensors of a checkpoint that several ranks wrote, read when asked for, by name without `prefix`.

    Raises:
        DataError: a rank's index is malformed, or pieces do not cover a tensor.
    """

    def __init__(self, folder: Path, prefix: str) -> None:
        self._prefix = prefix
        self._kept: dict[str, list[tuple[Path, str, list[int], list[int]]]] = {}
        self._shape: dict[str, list[int]] = {}
        for index in sorted((folder / FOLDER).glob("rank_*.json")):
            tensors = read_json(index).get("tensors")
            for name, about in (tensors if isinstance(tensors, dict) else {}).items():
                if name.startswith(prefix):
                    self._add(index.with_suffix(".safetensors"), name, about)

    def _add(self, file: Path, full: str, about: Any) -> None:
        name = full.removeprefix(self._prefix)
        try:
            key = about.get("key", full)  # older checkpoints: under its name
            shape, offset, size = ([int(n) for n in about[part]] for part in ("shape", "offset", "size"))
            inside = len(shape) == len(offset) == len(size) and min([0, *offset, *size]) == 0
            if not inside or any(o + n > whole for o, n, whole in zip(offset, size, shape)) or not isinstance(key, str):
                raise ValueError
        except (AttributeError, KeyError, TypeError, ValueError):
            raise DataError(
                Text(
                    f"{file.name}: what it says of {name!r} cannot be meant",
                    f"{file.name}：关于 {name!r} 的内容不可能成立",
                ),
                Text("take another checkpoint", "请用另一个检查点"),
            ) from None
        if self._shape.setdefault(name, shape) != shape:
            raise DataError(
                Text(
                    f"{name} has two shapes: {shape} and {self._shape[name]}",
                    f"{name} 有两种形状：{shape} 与 {self._shape[name]}",
                ),
                Text("take another checkpoint", "请用另一个检查点"),
            )
        self._kept.setdefault(name, []).append((file, key, offset, size))

    def __getitem__(self, name: str) -> Tensor:
        whole: Tensor | None = None
        covered = torch.zeros(self._shape[name], dtype=torch.bool)
        for file, key, offset, size in self._kept[name]:
            piece = read_tensor(file, key, size)
            whole = torch.empty(self._shape[name], dtype=piece.dtype) if whole is None else whole
            where = tuple(slice(o, o + n) for o, n in zip(offset, size))
            whole[where], covered[where] = piece, True
        if whole is None or not bool(covered.all()):
            raise DataError(
                Text(f"pieces of {name} are missing", f"{name} 缺少若干部分"),
                Text("take another checkpoint", "请用另一个检查点"),
            )
        return whole

    def __iter__(self) -> Iterator[str]:
        return iter(self._shape)

    def __len__(self) -> int:
        return len(self._shape)


def moments(folder: Path) -> dict[str, Mapping[str, Tensor]]:
    """The optimizer's moments of each weight, by its name in files; read when asked for."""
    parts, keys = Parts(folder, MOMENT), {}
    for full in parts:
        name, _, key = full.rpartition("/")
        keys.setdefault(name, {})[key] = full
    return {name: Renamed(parts, table) for name, table in keys.items()}
