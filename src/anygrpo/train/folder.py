"""The run folder: what lies where. Its layout is documented in docs/run-folder.md; other tools may read it."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from anygrpo.errors import ConfigError, TrainingError
from anygrpo.files import lines_of
from anygrpo.recipe.load import dump_recipe
from anygrpo.recipe.recipe import Recipe
from anygrpo.spoken import NOTHING, Text, say
from anygrpo.train import links

SCHEMA = 2
"""Of the run folder. 2: checkpoints without pickle, fingerprints.json, resumes.jsonl, config.toml as it was begun."""
FINGERPRINTS = "fingerprints.json"
SPEED = "speed.json"
_DISK = {
    errno.ENOSPC: "full", errno.EDQUOT: "full", errno.EFBIG: "full", errno.EROFS: "closed", errno.EACCES: "closed",
    errno.EPERM: "closed", errno.ENOTDIR: "closed", errno.EEXIST: "closed", errno.ENAMETOOLONG: "closed",
    errno.ENOENT: "gone", errno.EIO: "broken", errno.ESTALE: "broken", errno.ENODEV: "broken",
}  # fmt: skip
_CURES = {
    "full": Text(
        "free space there (older checkpoints: training.keep_checkpoints), or name another folder; then --resume",
        "请在那里腾出空间（旧检查点：training.keep_checkpoints），或换一个文件夹；再用 --resume",
    ),
    "closed": Text(
        "make it writable, or name a folder that is: --folder PATH",
        "请使它可写，或给出可写的文件夹：--folder PATH",
    ),
    "gone": Text(
        "somebody removed it, or the mount is gone; what lay in it can only come from a copy",
        "它被删除，或挂载点已消失；其中的内容只能来自备份",
    ),
    "broken": Text("see to the disk or the mount; then --resume", "请检查磁盘或挂载点；再用 --resume"),
}
_PACKAGES = ("anygrpo", "torch", "transformers", "peft", "diffusers", "numpy", "torchmetrics", "vllm")


@contextmanager
def writing(path: Path, saved: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Inside, a disk that cannot be written ends with what was saved and what was not, not with a bug report.

    Args:
        path: what is written to; errors of other files are left alone.
        saved: a sentence on what there is to go on from.

    Raises:
        TrainingError: full, read-only, gone, no permission; or out of memory, which `ulimit -v` may bound too.
    """
    try:
        yield
    except OSError as error:
        ours = error.filename is None or str(error.filename).startswith(str(path))
        if error.errno not in _DISK or not ours:
            raise
        file, fault = error.filename or path, os.strerror(error.errno)
        what = Text(f"{file} cannot be written: {fault}", f"{file} 无法写入：{fault}")
        raise TrainingError(what + _more(saved()), _CURES[_DISK[error.errno]]) from error
    except (MemoryError, RuntimeError) as error:
        if not no_memory(error):
            raise
        fault = str(error).splitlines()[0][:200] if str(error) else "MemoryError"
        cure = Text(
            "smaller rows_per_block, shorter samples or a smaller policy; or raise the limit (ulimit -v)",
            "请减小 rows_per_block、缩短样本或用较小的策略；或提高限制（ulimit -v）",
        )
        raise TrainingError(Text(f"out of memory: {fault}", f"内存不足：{fault}") + _more(saved()), cure) from error


def _more(said: str) -> Text:
    return Text(f"; {said}", f"；{said}") if said else NOTHING


def no_memory(error: BaseException) -> bool:
    """Whether this is the end of memory in one of its forms: torch has none of its own for the CPU."""
    words = ("can't allocate memory", "not enough memory", "Cannot allocate memory", "bad_alloc", "out of memory")
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or any(word in str(error) for word in words)


def write_whole(path: Path, text: str) -> None:
    """A small file, complete or absent: written beside, flushed, renamed."""
    fresh = path.with_name(f".{path.name}.tmp")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class RunFolder:
    """A folder owned by one process at a time.

    Raises:
        ConfigError: another process is writing there, or it holds another run and `resume` was not asked for.
    """

    def __init__(self, path: Path, resume: bool) -> None:
        self.path = path
        self._said: set[str] = set()
        if not resume and (path / "metrics.jsonl").exists():
            raise ConfigError(
                Text(f"{path} already holds a run", f"{path} 中已有一次运行"),
                Text(
                    f"continue it with --resume {path}, or name another folder",
                    f"用 --resume {path} 继续，或换一个文件夹",
                ),
            )
        try:
            links.settle(path)
        except OSError as error:
            with writing(Path(error.filename or path)):
                raise
        with writing(path):
            (path / "samples").mkdir(parents=True, exist_ok=True)
            self._lock = (path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                Text(f"another process is writing to {path}", f"另一个进程正在写入 {path}"),
                Text("wait for it, or name another folder", "等它结束，或换一个文件夹"),
            ) from None

    checkpoints = property(lambda self: self.path / "checkpoints")
    metrics = property(lambda self: self.path / "metrics.jsonl")
    pictures = property(lambda self: self.path / "pictures")

    def describe(self, recipe: Recipe) -> None:
        """config.toml and environment.json, of a run that begins; command.txt. A resume changes neither."""
        with (self.path / "command.txt").open("a", encoding="utf-8") as file:
            file.write(shlex.join(sys.argv) + "\n")
        if not (self.path / "config.toml").exists():
            write_whole(self.path / "config.toml", dump_recipe(recipe))
        if not (self.path / "environment.json").exists():
            write_whole(self.path / "environment.json", json.dumps(environment(), indent=2))

    def keep_fingerprints(self, prints: dict[str, str]) -> None:
        """fingerprints.json: what the run was made of when it began."""
        write_whole(self.path / FINGERPRINTS, json.dumps({"schema": SCHEMA, "fingerprints": prints}, indent=2))

    def keep_speed(self, chosen: Mapping[str, Any]) -> None:
        """speed.json: what was chosen for speed alone; a resumed run takes the same."""
        write_whole(self.path / SPEED, json.dumps({"schema": SCHEMA, **chosen}, indent=2))

    def speed(self) -> dict[str, Any]:
        """What speed.json holds; {} where there is none that can be read."""
        try:
            held = json.loads((self.path / SPEED).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return {name: value for name, value in held.items() if name != "schema"} if isinstance(held, dict) else {}

    def write_samples(self, step: int, rows: list[dict[str, Any]]) -> None:
        """samples/step_*.jsonl."""
        text = "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
        (self.path / "samples" / f"step_{step:08d}.jsonl").write_text(text, encoding="utf-8")

    def log(self, text: str) -> None:
        """A dated line in log.txt. Where it cannot be written it goes to the screen: no reason to lose a step."""
        try:
            with (self.path / "log.txt").open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        except OSError as error:
            print(f"log.txt ({error.strerror}): {text}", file=sys.stderr, flush=True)

    def log_invalid(self, step: int, reasons: dict[tuple[int, int], str]) -> None:
        """Some of a step's invalid samples in log.txt; the first one of each kind is said aloud too."""
        for (p, g), why in list(reasons.items())[:5]:
            self.log(f"step {step}: sample {g} of prompt {p} is invalid: {why}")
        for why in reasons.values():
            kind = why.split(":")[0]
            if kind not in self._said:
                self._said.add(kind)
                line = say(
                    f"step {step}: samples leave their groups, invalid: {why}",
                    f"第 {step} 步：有样本无效，退出所在的组：{why}",
                )
                print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        self._lock.close()


def next_folder(root: Path, name: str) -> Path:
    """runs/<name>-<number>, the first number not taken."""
    number = 1
    while (root / f"{name}-{number}").exists():
        number += 1
    return root / f"{name}-{number}"


def environment() -> dict[str, Any]:
    """Versions, machine and commit: what a reader needs to judge the numbers."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else platform.processor() or platform.machine()
    return {
        "schema": SCHEMA,
        "python": platform.python_version(),
        "packages": versions,
        "device": device,
        "cpus": os.cpu_count(),
        "commit": _commit(),
    }


@lru_cache(1)
def _commit() -> str | None:
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


class JsonlSink:
    """Appends rows; NaN and infinity are written as strings, so every line is standard JSON.

    The file is opened for each row: a resumed or rolled-back run cuts it in between.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def line(row: dict[str, Any]) -> str:
        clean = {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        return json.dumps(clean, ensure_ascii=False) + "\n"

    def write(self, row: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(self.line(row))

    def close(self) -> None:
        """Nothing stays open."""


def read_rows(path: Path) -> tuple[list[dict[str, Any]], int]:
    """All readable rows, and how many lines were not JSON objects (a crash can cut the last one)."""
    rows: list[dict[str, Any]] = []
    broken = 0
    for line in lines_of(path.read_text(encoding="utf-8", errors="replace")):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append({k: float(v) if v in ("nan", "inf", "-inf") else v for k, v in row.items()})
        elif line.strip():
            broken += 1
    return rows, broken


def cut_after(path: Path, step: int) -> int:
    """Drop rows of later steps than `step` (they will be repeated by a resumed run); returns how many went."""
    if not path.is_file():
        return 0
    rows, broken = read_rows(path)
    known = [row for row in rows if isinstance(row.get("step", 0), int | float)]
    kept = [row for row in known if row.get("step", 0) <= step]
    if len(kept) < len(rows) or broken:
        write_whole(path, "".join(map(JsonlSink.line, kept)))  # killed here, the old rows are whole
    return len(rows) - len(kept)
