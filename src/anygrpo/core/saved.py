"""Weights in files: what a policy starts from, and the tensors of a checkpoint that several ranks wrote, each its
shards (torch.distributed.checkpoint).

Shards are read one tensor at a time, whole, by any number of processes; none of them needs to have joined the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.errors import DataError

FOLDER = "parts"
WHOLE = "policy.safetensors"
_WEIGHT, _MOMENT = "weight/", "moment/"


def read_weights(path: Path) -> Any:
    """What a safetensors or torch file holds; of a checkpoint's folder, or the newest checkpoint of a run's, the
    weights by name, whole tensors whatever number of ranks wrote them.

    Raises:
        DataError: nothing there.
    """
    if path.is_dir():
        folders = [path, *sorted(path.glob("checkpoints/step_*"))]
        path = next((f for f in reversed(folders) if (f / FOLDER).is_dir() or (f / WHOLE).is_file()), path)
        if (path / FOLDER).is_dir():
            return dict(weights(path))
        path = path / WHOLE
    if not path.is_file():
        raise DataError(f"no weights at {path}", "give a file of weights, a checkpoint's folder or a run's folder")
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def write(folder: Path, weights: Mapping[str, Tensor], moments: list[dict[str, Tensor]]) -> None:
    """Every rank calls it with its shards; what all ranks hold is written once."""
    import torch.distributed.checkpoint as dcp

    tensors = {_WEIGHT + name: value for name, value in weights.items()}
    tensors |= {f"{_MOMENT}{i}/{key}": value for i, one in enumerate(moments) for key, value in one.items()}
    dcp.save(tensors, checkpoint_id=str(folder / FOLDER))


class Parts(Mapping[str, Tensor]):
    """Whole tensors by name, read when asked for, without what `prefix` says of their names."""

    def __init__(self, reader: Any, kept: Mapping[str, Any], prefix: str) -> None:
        self._reader, self._prefix = reader, prefix
        self._kept: dict[str, Any] = {
            name.removeprefix(prefix): value for name, value in kept.items() if name.startswith(prefix)
        }

    def __getitem__(self, name: str) -> Tensor:
        import torch.distributed.checkpoint as dcp

        about = self._kept[name]
        into = {self._prefix + name: torch.empty(about.size, dtype=about.properties.dtype)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that it runs in one process, which is meant
            dcp.load(into, storage_reader=self._reader, no_dist=True)
        return into[self._prefix + name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


def weights(folder: Path) -> Parts:
    """The weights in a checkpoint folder, by name."""
    return Parts(*_opened(folder), _WEIGHT)


def moments(folder: Path, parameters: int) -> list[Parts]:
    """The optimizer's moments of each of `parameters` weights."""
    reader, kept = _opened(folder)
    return [Parts(reader, kept, f"{_MOMENT}{i}/") for i in range(parameters)]


def _opened(folder: Path) -> tuple[Any, Mapping[str, Any]]:
    """The reader, and what it knows of each tensor. (Imported here: it is slow, and few runs are sharded.)"""
    import torch.distributed.checkpoint as dcp

    reader = dcp.FileSystemReader(str(folder / FOLDER))
    return reader, reader.read_metadata().state_dict_metadata
