"""The run folder: what lies where. Its layout is documented in docs/run-folder.md; other tools may read it."""

from __future__ import annotations

import fcntl
import json
import math
import os
import platform
import shlex
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError
from anygrpo.recipe.load import dump_recipe
from anygrpo.recipe.recipe import Recipe

SCHEMA = 1
_PACKAGES = ("anygrpo", "torch", "transformers", "peft", "diffusers", "numpy", "torchmetrics", "vllm")


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
                f"{path} already holds a run", f"continue it with --resume {path}, or name another folder"
            )
        (path / "samples").mkdir(parents=True, exist_ok=True)
        self._lock = (path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"another process is writing to {path}", "wait for it, or name another folder") from None

    checkpoints = property(lambda self: self.path / "checkpoints")
    metrics = property(lambda self: self.path / "metrics.jsonl")
    pictures = property(lambda self: self.path / "pictures")

    def describe(self, recipe: Recipe) -> None:
        """config.toml, command.txt, environment.json."""
        (self.path / "config.toml").write_text(dump_recipe(recipe), encoding="utf-8")
        with (self.path / "command.txt").open("a", encoding="utf-8") as file:
            file.write(shlex.join(sys.argv) + "\n")
        (self.path / "environment.json").write_text(json.dumps(environment(), indent=2), encoding="utf-8")

    def write_samples(self, step: int, rows: list[dict[str, Any]]) -> None:
        """samples/step_*.jsonl."""
        text = "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
        (self.path / "samples" / f"step_{step:08d}.jsonl").write_text(text, encoding="utf-8")

    def log(self, text: str) -> None:
        """A dated line in log.txt."""
        with (self.path / "log.txt").open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")

    def log_invalid(self, step: int, reasons: dict[tuple[int, int], str]) -> None:
        """Some of a step's invalid samples in log.txt; the first one of each kind is said aloud too."""
        for (p, g), why in list(reasons.items())[:5]:
            self.log(f"step {step}: sample {g} of prompt {p} is invalid: {why}")
        for why in reasons.values():
            kind = why.split(":")[0]
            if kind not in self._said:
                self._said.add(kind)
                print(f"step {step}: samples leave their groups, invalid: {why}", file=sys.stderr, flush=True)

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
    import torch

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

    def write(self, row: dict[str, Any]) -> None:
        clean = {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(clean, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Nothing stays open."""


def read_rows(path: Path) -> tuple[list[dict[str, Any]], int]:
    """All readable rows, and how many lines were not JSON objects (a crash can cut the last one)."""
    rows: list[dict[str, Any]] = []
    broken = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
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
    kept = [row for row in rows if row.get("step", 0) <= step]
    if len(kept) < len(rows) or broken:
        fresh = path.with_suffix(".tmp")
        fresh.write_text("", encoding="utf-8")
        sink = JsonlSink(fresh)
        for row in kept:
            sink.write(row)
        sink.close()
        # in place: a sink that has the file open for appending goes on writing to this same file
        path.write_bytes(fresh.read_bytes())
        fresh.unlink()
    return len(rows) - len(kept)
