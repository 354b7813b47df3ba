"""Tensors in files: what a policy starts from, and those of a checkpoint. Safetensors, with JSON for what lies where.

Where several ranks hold shards, each writes `parts/rank_00000.safetensors` with its pieces and `rank_00000.json` with
their names, offsets and the whole's shape. Whole tensors are read from them one at a time, by any number of processes;
none of them needs to have joined the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from anygrpo.errors import ConfigError, DataError

FOLDER = "parts"
WHOLE = "policy.safetensors"
T = TypeVar("T")
STATE = "state.json"
SCHEMA = 2
_WEIGHT, _MOMENT = "weight/", "moment/"


@dataclass(frozen=True)
class Form:
    """What makes a checkpoint's folder one that the policy's own library loads as it is.

    Attributes:
        file: name of the file of weights (the one that the library looks for).
        metadata: of that file: texts by key (a LoRA's strength, for diffusers).
        beside: small text files that the library reads with it, by name (adapter_config.json, config.json).
    """

    file: str = WHOLE
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    beside: Mapping[str, str] = field(default_factory=dict[str, str])


def whole(folder: Path) -> Path | None:
    """The file of unsharded weights in a checkpoint's folder: `policy.safetensors`, or the one its state names."""
    if (folder / WHOLE).is_file():
        return folder / WHOLE
    try:
        name = read_json(folder / STATE).get("weights")
    except DataError:
        return None
    inside = isinstance(name, str) and name == Path(name).name and (folder / name).is_file()
    return folder / name if inside else None  # type: ignore[operator]


def holds_weights(folder: Path) -> bool:
    """Whether a folder is a checkpoint's, sharded or not."""
    return (folder / FOLDER).is_dir() or whole(folder) is not None


def read_weights(path: Path) -> Any:
    """What a safetensors or torch file holds; of a checkpoint's folder, or the newest checkpoint of a run's, the
    weights by the policy's own names, whole tensors whatever number of ranks wrote them.

    Raises:
        DataError: nothing there, or no such file of tensors.
    """
    if path.is_dir():
        folders = [path, *sorted(path.glob("checkpoints/step_*"))]
        path = next((f for f in reversed(folders) if holds_weights(f)), path)
        if holds_weights(path):
            return dict(weights(path))
        path = path / WHOLE
    if not path.is_file():
        raise DataError(f"no weights at {path}", "give a file of weights, a checkpoint's folder or a run's folder")
    if path.suffix == ".safetensors":
        return read_tensors(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise DataError(f"{path} is no file of weights that can be read safely: {type(error).__name__}",
                        "give a .safetensors file") from None  # fmt: skip


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """A safetensors file; tensors that are views, or share memory, are copied first.

    Raises:
        OSError: the disk is full, or not writable.
    """
    held: set[int] = set()
    plain: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        t = tensor.detach().cpu()
        own = t.is_contiguous() and t.untyped_storage().nbytes() == t.numel() * t.element_size()
        address = t.untyped_storage().data_ptr()
        plain[name] = t if own and address not in held and t.numel() else t.contiguous().clone()
        held.add(address)
    try:
        save_file(plain, path, metadata={"format": "pt", **(metadata or {})})
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        raise OSError(int(code[1]) if code else 5, str(error), str(path)) from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, mapped rather than read: ranks of one host share its pages.

    Raises:
        DataError: not a safetensors file.
    """
    try:
        with safe_open(path, "pt") as file:  # type: ignore[no-untyped-call]
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(f"{path} is no safetensors file: {error}", "give another file, or another checkpoint") from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON table.

    Raises:
        DataError: absent, or not a table.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {type(error).__name__}: {error}", "take another checkpoint") from None
    if not isinstance(value, dict):
        raise DataError(f"{path} holds a {type(value).__name__}, not a table", "take another checkpoint")
    return value


def library_names(names: Mapping[str, str], own: Mapping[str, Any]) -> dict[str, str]:
    """own name -> the name in files, for all of `own`; names not in `names` are their own.

    Raises:
        ConfigError: two weights would have the same name in files.
    """
    table = {name: names.get(name, name) for name in own}
    if len(set(table.values())) < len(table):
        twice = sorted(v for v in set(table.values()) if list(table.values()).count(v) > 1)
        raise ConfigError(f"saved_names gives two weights the name {twice[0]!r}", "name each weight once")
    return table


def own_names(found: Mapping[str, T], names: Mapping[str, str]) -> dict[str, T]:
    """Tensors or moments by a policy's own names, of files with those or the library's. `names`: own -> library's."""
    back = {library: own for own, library in names.items()}
    return {name if name in names else back.get(name, name): found[name] for name in found}


def weights(folder: Path) -> Mapping[str, Tensor]:
    """The weights in a checkpoint folder by the policy's own names (its state says which those are)."""
    found: Mapping[str, Tensor]
    if (folder / FOLDER).is_dir():
        found = Parts(folder, _WEIGHT)
    else:
        found = read_tensors(whole(folder) or folder / WHOLE)
    names = read_json(folder / STATE).get("names") if (folder / STATE).is_file() else None
    if not isinstance(names, dict) or not names:
        return found
    back = {library: own for own, library in names.items() if isinstance(library, str)}
    return Renamed(found, {back.get(name, name): name for name in found})


def write(
    folder: Path, weights: Mapping[str, Tensor], moments: Mapping[str, Mapping[str, Tensor]], rank: int = 0
) -> None:
    """Every rank calls it with its shards; what all ranks hold whole is written by the first."""
    tensors = {_WEIGHT + name: value for name, value in weights.items()}
    tensors |= {f"{_MOMENT}{name}/{key}": value for name, one in moments.items() for key, value in one.items()}
    pieces: dict[str, Tensor] = {}
    index: dict[str, Any] = {}
    for name, tensor in tensors.items():
        for offset, piece in _pieces(tensor, rank):
            pieces[name] = piece
            index[name] = {"shape": list(tensor.shape), "offset": offset, "size": list(piece.shape)}
    (folder / FOLDER).mkdir(exist_ok=True)
    file = folder / FOLDER / f"rank_{rank:05d}"
    write_tensors(file.with_suffix(".safetensors"), pieces)
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
        self._kept: dict[str, list[tuple[Path, list[int], list[int]]]] = {}
        self._shape: dict[str, list[int]] = {}
        for index in sorted((folder / FOLDER).glob("rank_*.json")):
            tensors = read_json(index).get("tensors")
            for name, about in (tensors if isinstance(tensors, dict) else {}).items():
                if name.startswith(prefix):
                    self._add(index.with_suffix(".safetensors"), name.removeprefix(prefix), about)

    def _add(self, file: Path, name: str, about: Any) -> None:
        try:
            shape, offset, size = ([int(n) for n in about[key]] for key in ("shape", "offset", "size"))
            inside = len(shape) == len(offset) == len(size) and min([0, *offset, *size]) == 0
            if not inside or any(o + n > whole for o, n, whole in zip(offset, size, shape)):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise DataError(
                f"{file.name}: what it says of {name!r} cannot be meant", "take another checkpoint"
            ) from None
        if self._shape.setdefault(name, shape) != shape:
            raise DataError(f"{name} has two shapes: {shape} and {self._shape[name]}", "take another checkpoint")
        self._kept.setdefault(name, []).append((file, offset, size))

    def __getitem__(self, name: str) -> Tensor:
        whole: Tensor | None = None
        covered = torch.zeros(self._shape[name], dtype=torch.bool)
        for file, offset, size in self._kept[name]:
            piece = read_piece(file, self._prefix + name, size)
            whole = torch.empty(self._shape[name], dtype=piece.dtype) if whole is None else whole
            where = tuple(slice(o, o + n) for o, n in zip(offset, size))
            whole[where], covered[where] = piece, True
        if whole is None or not bool(covered.all()):
            raise DataError(f"pieces of {name} are missing", "take another checkpoint")
        return whole

    def __iter__(self) -> Iterator[str]:
        return iter(self._shape)

    def __len__(self) -> int:
        return len(self._shape)


def read_piece(file: Path, name: str, size: list[int]) -> Tensor:
    """One tensor of a safetensors file, of the size that was announced.

    Raises:
        DataError: absent, or of another size.
    """
    try:
        with safe_open(file, "pt") as opened:  # type: ignore[no-untyped-call]
            piece = opened.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise DataError(f"{file} cannot be read: {error}", "take another checkpoint") from None
    if list(piece.shape) != size:
        raise DataError(f"{file}: {name} has shape {list(piece.shape)}, {size} was written", "take another checkpoint")
    return piece


def moments(folder: Path) -> dict[str, Mapping[str, Tensor]]:
    """The optimizer's moments of each weight, by its name in files; read when asked for."""
    parts, keys = Parts(folder, _MOMENT), {}
    for full in parts:
        name, _, key = full.rpartition("/")
        keys.setdefault(name, {})[key] = full
    return {name: Renamed(parts, table) for name, table in keys.items()}
