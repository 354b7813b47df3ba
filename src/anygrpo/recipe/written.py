"""Recipes in run folders: written once, and what resumes changed since. Standard library only."""

from __future__ import annotations

import json
import os
import sysconfig
from pathlib import Path
from typing import Any

from anygrpo.errors import DataError
from anygrpo.files import lines_of
from anygrpo.spoken import Text

RESUMES = "resumes.jsonl"
_SIGNS = ("metrics.jsonl", "environment.json", "command.txt", "checkpoints")


def is_in_run_folder(path: Path) -> bool:
    """Whether this recipe is the config.toml of a run."""
    return path.name == "config.toml" and any((path.parent / name).exists() for name in _SIGNS)


def flat(table: Any, where: str = "") -> dict[str, Any]:
    """Dotted key -> value; tables inside lists have their number for a key."""
    if isinstance(table, dict) and (table or not where):
        pairs = [(str(key), value) for key, value in table.items()]
    elif isinstance(table, list) and any(isinstance(x, dict) for x in table):
        pairs = [(str(i), value) for i, value in enumerate(table)]
    else:
        return {where: table}
    out: dict[str, Any] = {}
    for key, value in pairs:
        out |= flat(value, f"{where}.{key}" if where else key)
    return out


def apply_changes(table: dict[str, Any], folder: Path) -> None:
    """Set what earlier resumes of this run changed, in order; config.toml itself stays as it was written.

    Raises:
        DataError: the record of resumes does not fit the recipe.
    """
    try:
        lines = lines_of((folder / RESUMES).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return
    for number, line in enumerate(lines, 1):
        try:
            made = json.loads(line)
            changed = made.get("changed", {}) if isinstance(made, dict) else {}
            for key, (_, value) in changed.items():
                _set(table, key.split("."), value)
        except json.JSONDecodeError:
            continue  # cut by a crash: that resume did not begin
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            raise DataError(
                Text(
                    f"{folder / RESUMES}, line {number}, does not fit the recipe: {error}",
                    f"{folder / RESUMES} 第 {number} 行与配方不符：{error}",
                ),
                Text("remove that line", "请删除那一行"),
            ) from None


def _set(table: Any, path: list[str], value: Any) -> None:
    *parents, last = path
    for key in parents:
        if isinstance(table, list):
            while len(table) <= int(key) < 1000:
                table.append({})
            table = table[int(key)]
        else:
            table = table.setdefault(key, {})
    if isinstance(table, list):
        table[int(last)] = value
    elif value is None:
        table.pop(last, None)
    else:
        table[last] = value


def refuse_own_code(table: dict[str, Any], file: Path) -> None:
    """A run folder or an export may come from anybody: code that lies in it is not run by opening it, nor is a function
    of Python's own or of an installed package (`shutil.py:rmtree`), which lies at known places on every machine.

    Args:
        file: the recipe in that folder.

    Raises:
        DataError: the recipe names a Python file inside its own folder, or of this Python's installation.
    """
    inside = file.parent.resolve()
    python = {Path(sysconfig.get_path("platstdlib")).resolve(), Path(os.__file__).resolve().parent}
    for key, value in flat(table).items():
        for text in value if isinstance(value, list) else [value]:
            path = text.rpartition(":")[0] if isinstance(text, str) and ".py:" in text else ""
            if not path or "\0" in path:
                continue
            above = set(Path(path).resolve().parents)
            if above & python or {one.name for one in above} & {"site-packages", "dist-packages"}:
                raise DataError(
                    Text(
                        f"{file}: {key} names code of this Python's installation ({text}), which is not run",
                        f"{file}：{key} 指向 Python 安装中的代码（{text}），它不会运行",
                    ),
                    Text(
                        "name a file of your own, with a flag or in a copy of the recipe",
                        "请用参数或在配方的副本中给出您自己的文件",
                    ),
                )
            if inside in above:
                raise DataError(
                    Text(
                        f"{file}: {key} names code inside the run folder ({text}), which is not run",
                        f"{file}：{key} 指向运行文件夹内的代码（{text}），它不会运行",
                    ),
                    Text(
                        "read it, move it elsewhere, and name it with a flag or in a copy of the recipe",
                        "请阅读后移到别处，再用参数或在配方的副本中指名它",
                    ),
                )
