"""Checkpoints that are complete or absent: written beside, flushed, renamed; verified before use. No pickle in them.

A checkpoint folder `step_00000100` holds policy.safetensors (trainable weights by the library's own key names; adapters
alone under LoRA; under the library's own file name, with what it reads beside, where `Policy.saved_form` says so),
optimizer.safetensors (moments), state.json (controllers, counters; schema 2) with state.safetensors (its tensors), and
manifest.json (size and SHA-256 of each file). Where weights are sharded, they lie in a file a rank with the library's
index, and parts/ holds the moments (`anygrpo.core.saved_parts`). Files that are no weights are numbered, so that
no library takes them for any (`anygrpo.core.tensor_files`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from anygrpo.core import saved, saved_parts
from anygrpo.core.packing import pack, unpack
from anygrpo.core.tensor_files import read_json, read_tensors, write_tensors
from anygrpo.errors import DataError
from anygrpo.spoken import Text
from anygrpo.train.places import flush, put, remove

PREFIX = "step_"
SCHEMA = saved_parts.SCHEMA
MANIFEST, OPTIMIZER, TENSORS = "manifest.json", "optimizer.safetensors", "state.safetensors"
_NAME = re.compile(PREFIX + r"\d{8}")


def save(
    folder: Path,
    step: int,
    weights: Mapping[str, Tensor],
    state: dict[str, Any],
    keep: int,
    best: bool,
    names: Mapping[str, str] | None = None,
    form: saved.Form | None = None,
) -> Path:
    """Write the checkpoint of `step`; older ones beyond `keep` go, the best one stays (as `best/`).

    Args:
        weights: by the policy's own names.
        state: plain data and tensors (`anygrpo.core.packing`); state["updater"]["moments"] is name -> moments.
        names: own name -> the library's, under which a weight is written (`Policy.saved_names`).
        form: the file's name and what lies beside it (`Policy.saved_form`).

    Raises:
        OSError: the disk is full; nothing half-written is left behind.
    """
    table = saved.library_names(names or {}, weights)
    temporary, form = begin(folder, step), form or saved.Form()
    try:
        tensors = {table[name]: value for name, value in weights.items()} | dict(form.fixed)
        write_tensors(temporary / form.file, tensors, form.metadata, form.numbered)
        return finish(temporary, step, state, keep, best, table, form)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def begin(folder: Path, step: int) -> Path:
    """An empty folder to write the checkpoint of `step` in; nothing takes it for one before `finish`."""
    temporary = folder / f".{PREFIX}{step:08d}.{os.getpid()}"
    remove(temporary)
    temporary.mkdir(parents=True)
    return temporary


def finish(
    temporary: Path,
    step: int,
    state: dict[str, Any],
    keep: int,
    best: bool,
    names: Mapping[str, str] | None = None,
    form: saved.Form | None = None,
) -> Path:
    """Add the state, and what a library reads with the weights, to what `begin` gave and make it the checkpoint of
    `step`; see `save`."""
    folder, form = temporary.parent, form or saved.Form()
    target = folder / f"{PREFIX}{step:08d}"
    for name, text in form.beside.items():
        (temporary / name).write_text(text, encoding="utf-8")
    other_names = {own: name for own, name in (names or {}).items() if own != name}
    fixed = {"fixed": sorted(form.fixed)} if form.fixed else {}
    _write_state(temporary, state, {"names": other_names, "weights": form.file} | fixed)
    _seal(temporary)
    put(temporary, target)
    if best:
        _copy_as_best(folder, target)
    for old in complete(folder)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def _write_state(folder: Path, state: dict[str, Any], about: dict[str, Any]) -> None:
    """state.json (with `about` the weights' file), state.safetensors, and moments of weights that are not sharded."""
    updater = state.get("updater")
    if updater is not None and "moments" in updater:
        moments = {f"{name}/{key}": x for name, one in updater["moments"].items() for key, x in one.items()}
        write_tensors(folder / OPTIMIZER, moments, numbered=True)
        state = state | {"updater": {key: x for key, x in updater.items() if key != "moments"}}
    tensors: dict[str, Tensor] = {}
    packed = {key: pack(value, tensors, key) for key, value in state.items()}
    if tensors:
        write_tensors(folder / TENSORS, tensors, numbered=True)
    text = json.dumps({"schema": SCHEMA, **about, "state": packed}, ensure_ascii=False, allow_nan=False)
    (folder / saved.STATE).write_text(text, encoding="utf-8")


def _seal(folder: Path) -> None:
    files = sorted(f for f in folder.rglob("*") if f.is_file())
    table = {f.relative_to(folder).as_posix(): {"size": f.stat().st_size, "sha256": _sha256(f)} for f in files}
    (folder / MANIFEST).write_text(json.dumps({"schema": SCHEMA, "files": table}, indent=1), encoding="utf-8")
    for path in [*files, folder / MANIFEST, *(f for f in folder.rglob("*") if f.is_dir()), folder]:
        flush(path)


def _copy_as_best(folder: Path, source: Path) -> None:
    fresh = folder / ".best"
    remove(fresh)
    shutil.copytree(source, fresh)
    for path in [*fresh.rglob("*"), fresh]:
        flush(path)
    put(fresh, folder / "best")


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def problems(checkpoint: Path) -> list[str]:
    """Why a checkpoint cannot be used; empty where it is whole. Only reads, never past the folder."""
    return list(_problems(checkpoint))


def _problems(checkpoint: Path) -> Iterator[str]:
    if (checkpoint / "state.pt").exists() and not (checkpoint / saved.STATE).exists():
        yield "it is of an older version, whose state.pt is a pickle: weights can be read, the state cannot"
        return
    try:
        files = read_json(checkpoint / MANIFEST).get("files")
    except DataError as error:
        yield error.what
        return
    if not isinstance(files, dict) or not files:
        yield f"{MANIFEST} names no files"
        return
    for name, about in files.items():
        if why := _damage(checkpoint, name, about):
            yield f"{name} {why}"
    try:
        yield from (f"{name} is not in {MANIFEST}" for name in sorted(_read(checkpoint)) if name not in files)
    except DataError as error:
        yield error.what


def _read(checkpoint: Path) -> set[str]:
    """Files that `load` would read: those it needs, and those it takes if they are there.

    Raises:
        DataError: the weights' index is malformed.
    """
    weights, pieces = saved.whole(checkpoint), [*checkpoint.glob(f"{saved_parts.FOLDER}/rank_*")]
    names = {saved.STATE, *(name for name in (OPTIMIZER, TENSORS) if (checkpoint / name).exists())}
    names |= {f.relative_to(checkpoint).as_posix() for f in pieces}
    if weights is None:
        return names if pieces else names | {saved.WHOLE}
    files = saved_parts.shards(weights).values() if weights.name.endswith(saved_parts.INDEX) else ()
    return names | {weights.name, *(f.name for f in files)}


def _damage(checkpoint: Path, name: str, about: Any) -> str | None:
    """What is wrong with one file of the manifest."""
    path = checkpoint / name
    inside = not Path(name).is_absolute() and ".." not in Path(name).parts
    if not inside or not isinstance(about, dict):
        return "cannot be meant"
    try:
        if path.is_symlink() or not path.is_file():
            return "is missing"
        if path.stat().st_size != about.get("size"):
            return f"has {path.stat().st_size} bytes, {about.get('size')} were written"
        if _sha256(path) != about.get("sha256"):
            return "has other bytes than were written"
        if path.suffix == ".safetensors":
            with safe_open(path, "pt"):
                pass  # its header was read
        if path.suffix == ".json" and (name == saved.STATE or name.startswith(saved_parts.FOLDER + "/")):
            schema = read_json(path).get("schema")
            if schema != SCHEMA:
                return f"has schema {schema}; this version reads {SCHEMA}"
    except (OSError, SafetensorError, ValueError, DataError) as error:
        return f"cannot be read: {error}"
    return None


def is_complete(checkpoint: Path) -> bool:
    """Every file of the manifest is there, with its size and checksum, and can be read."""
    return not problems(checkpoint)


def complete(folder: Path) -> list[Path]:
    """Checkpoint folders that runs make, oldest first, by name; not verified. A user's own copies are not."""
    own = (p for p in folder.glob(f"{PREFIX}*") if _NAME.fullmatch(p.name))
    return sorted(p for p in own if p.is_dir() and not p.is_symlink())


def step_of(checkpoint: Path) -> int:
    """The step a checkpoint continues at, from its name; `best/` says it in its state."""
    name = checkpoint.name
    return int(name.removeprefix(PREFIX) if _NAME.fullmatch(name) else load(checkpoint)[1]["step"])


def drop_after(folder: Path, step: int) -> None:
    """Remove the checkpoints of later steps: a run that went back must not be resumed from what it left behind."""
    for late in complete(folder):
        if step_of(late) > step:
            shutil.rmtree(late, ignore_errors=True)


def newest(folder: Path) -> Path | None:
    """The newest checkpoint that verifies; damaged ones are passed over."""
    return next((p for p in reversed(complete(folder)) if is_complete(p)), None)


def load(checkpoint: Path) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
    """Weights by the policy's own names, and state; whole tensors, whatever number of ranks wrote them (parts are read
    when asked for). No code of the files is run.

    Raises:
        DataError: damaged or absent.
    """
    if wrong := problems(checkpoint):
        why = wrong[0]
        raise _unusable(f"{checkpoint} is incomplete or damaged: {why}", f"{checkpoint} 不完整或已损坏：{why}")
    file = checkpoint / saved.STATE
    packed = read_json(file).get("state")
    if not isinstance(packed, dict):
        raise _unusable(f"{file} holds no state", f"{file} 中没有状态")
    tensors = read_tensors(checkpoint / TENSORS) if (checkpoint / TENSORS).is_file() else {}
    state = {key: unpack(value, tensors) for key, value in packed.items()}
    if type(state.get("step")) is not int or state["step"] < 0:
        raise _unusable(f"{file}: step is no number of a step", f"{file}：step 不是步数")
    if (updater := state.get("updater")) is not None:
        if not isinstance(updater, dict):
            raise _unusable(f"{file}: updater is no table", f"{file}：updater 不是表")
        updater["moments"] = _moments(checkpoint)
    return saved.weights(checkpoint), state


def _unusable(what: str, chinese: str) -> DataError:
    cure = Text("resume from another checkpoint of the same run", "请从同一次运行的另一个检查点继续")
    return DataError(Text(what, chinese), cure)


def _moments(checkpoint: Path) -> Mapping[str, Mapping[str, Tensor]]:
    if (checkpoint / saved_parts.FOLDER).is_dir():
        return saved_parts.moments(checkpoint)
    made: dict[str, dict[str, Tensor]] = {}
    for full, value in read_tensors(checkpoint / OPTIMIZER).items():
        name, _, key = full.rpartition("/")
        made.setdefault(name, {})[key] = value
    return made
