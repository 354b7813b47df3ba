"""Checkpoints that are complete or absent: written beside, flushed, renamed; verified before use.

A checkpoint folder `step_00000100` holds policy.safetensors (trainable weights by name; adapters alone under LoRA),
state.pt (optimizer, controllers, counters, random state) and manifest.json (size and CRC of each file). Where weights
are sharded, the folder parts/ holds them and the optimizer's moments (see `policies.saved`).
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from anygrpo.core import saved
from anygrpo.errors import DataError

PREFIX = "step_"


def save(folder: Path, step: int, weights: dict[str, Tensor], state: dict[str, Any], keep: int, best: bool) -> Path:
    """Write the checkpoint of `step`; older ones beyond `keep` go, the best one stays (as `best/`).

    Raises:
        OSError: the disk is full; nothing half-written is left behind.
    """
    temporary = begin(folder, step)
    try:
        save_file({k: v.detach().cpu().contiguous().clone() for k, v in weights.items()}, temporary / saved.WHOLE)
        return finish(temporary, step, state, keep, best)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def begin(folder: Path, step: int) -> Path:
    """An empty folder to write the checkpoint of `step` in; nothing takes it for one before `finish`."""
    temporary = folder / f".{PREFIX}{step:08d}.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    return temporary


def finish(temporary: Path, step: int, state: dict[str, Any], keep: int, best: bool) -> Path:
    """Add the state to what `begin` gave and make it the checkpoint of `step`; see `save`."""
    folder = temporary.parent
    target = folder / f"{PREFIX}{step:08d}"
    _seal(temporary, state)
    shutil.rmtree(target, ignore_errors=True)
    temporary.rename(target)
    if best:
        _copy_as_best(folder, target)
    for old in complete(folder)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def _seal(folder: Path, state: dict[str, Any]) -> None:
    torch.save(state, folder / "state.pt")
    files = sorted(f for f in folder.rglob("*") if f.is_file())
    manifest = {str(f.relative_to(folder)): [f.stat().st_size, _crc(f)] for f in files}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for file in [*files, folder / "manifest.json"]:
        with file.open("rb") as handle:
            os.fsync(handle.fileno())


def _copy_as_best(folder: Path, source: Path) -> None:
    fresh = folder / ".best"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(source, fresh)
    shutil.rmtree(folder / "best", ignore_errors=True)
    fresh.rename(folder / "best")


def _crc(file: Path) -> int:
    value = 0
    with file.open("rb") as handle:
        while chunk := handle.read(1 << 22):
            value = zlib.crc32(chunk, value)
    return value


def is_complete(checkpoint: Path) -> bool:
    """Every file of the manifest is there, with its size and checksum."""
    try:
        manifest = json.loads((checkpoint / "manifest.json").read_text())
        return all(
            (checkpoint / name).stat().st_size == size and _crc(checkpoint / name) == crc
            for name, (size, crc) in manifest.items()
        )
    except (OSError, ValueError):
        return False


def complete(folder: Path) -> list[Path]:
    """Checkpoint folders, oldest first, by name; not verified."""
    return sorted(p for p in folder.glob(f"{PREFIX}*") if p.is_dir())


def step_of(checkpoint: Path) -> int:
    """The step a checkpoint continues at, from its name; `best/` says it in its state."""
    if checkpoint.name.startswith(PREFIX):
        return int(checkpoint.name.removeprefix(PREFIX))
    return int(load(checkpoint)[1]["step"])


def drop_after(folder: Path, step: int) -> None:
    """Remove the checkpoints of later steps: a run that went back must not be resumed from what it left behind."""
    for late in complete(folder):
        if step_of(late) > step:
            shutil.rmtree(late, ignore_errors=True)


def newest(folder: Path) -> Path | None:
    """The newest checkpoint that verifies; damaged ones are passed over."""
    return next((p for p in reversed(complete(folder)) if is_complete(p)), None)


def load(checkpoint: Path) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
    """Weights and state; whole tensors, whatever number of ranks wrote them (parts are read when asked for).

    Raises:
        DataError: damaged or absent.
    """
    if not is_complete(checkpoint):
        raise DataError(f"{checkpoint} is incomplete or damaged", "resume from another checkpoint of the same run")
    # Mapped, not read: ranks of one host share its pages, and take what is theirs.
    state = torch.load(checkpoint / "state.pt", weights_only=False, map_location="cpu", mmap=True)
    if not (checkpoint / saved.FOLDER).is_dir():
        return load_file(checkpoint / saved.WHOLE), state
    if state["updater"] is not None:
        state["updater"]["moments"] = saved.moments(checkpoint, state["updater"]["parameters"])
    return saved.weights(checkpoint), state
