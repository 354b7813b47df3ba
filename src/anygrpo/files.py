"""Files of the user's: where the cache is, TOML that may be anybody's, folders that may hold what is no file."""

from __future__ import annotations

import contextlib
import os
import stat
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError, DataError
from anygrpo.spoken import Text

DEEPEST = 64
"""Tables in tables, lists in lists: no recipe comes near, and Python's recursion ends far behind."""
MARKS = ("config.toml", "metrics.jsonl", "manifest.json")
"""What makes a folder a run or a checkpoint."""


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/anygrpo, or ~/.cache/anygrpo."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anygrpo"


def toml_table(text: str) -> dict[str, Any]:
    """A TOML text as a table.

    Raises:
        TOMLDecodeError: not TOML, or nested deeper than `DEEPEST`.
    """
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("nested too deeply") from None
    layer: list[Any] = [table]
    for _ in range(DEEPEST):
        layer = [inner for outer in layer for inner in _inner(outer)]
        if not layer:
            return table
    raise tomllib.TOMLDecodeError(f"nested deeper than {DEEPEST} tables and lists")


def _inner(value: dict[str, Any] | list[Any]) -> Iterator[Any]:
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield inner


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a table.

    Raises:
        ConfigError: not TOML, not UTF-8, or nested deeper than `DEEPEST`. OSError: it cannot be read.
    """
    try:
        return toml_table(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(Text(f"{path} is not valid TOML: {error}", f"{path} 不是有效的 TOML：{error}")) from None


def refuse_what_is_no_file(named: str) -> None:
    """A stranger's run folder may hold a pipe, which is waited for for ever, or a link to a device, which never ends.

    Args:
        named: a word of the command line. One that names no run or checkpoint, nor a file of one, is passed over.

    Raises:
        DataError: something in the folder is neither a file nor a folder.
    """
    folder = os.path.dirname(named) if os.path.basename(named) in MARKS else named
    if not any(os.path.lexists(os.path.join(folder, mark)) for mark in MARKS):
        return
    top = folder.rstrip(os.sep).count(os.sep)
    for root, below, names in os.walk(folder):
        if root.count(os.sep) - top >= 4:  # RUN/checkpoints/step_00000100/parts/FILE
            below.clear()
        for path in (os.path.join(root, name) for name in names):
            try:
                kind = os.stat(path).st_mode
            except OSError:
                continue  # a link to nothing; what reads it says so
            if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                raise DataError(
                    Text(f"{path} is a pipe, a socket or a device", f"{path} 是管道、套接字或设备"),
                    Text("nothing of a run is one: remove it", "运行文件夹中不应有它：请删除"),
                )


@contextlib.contextmanager
def whole_or_none(files: Iterable[Path]) -> Iterator[None]:
    """Whatever fails within, an interrupt too, takes `files` away: for what must not stay unless it was tried."""
    try:
        yield
    except BaseException:
        for file in files:
            file.unlink(missing_ok=True)
        raise
