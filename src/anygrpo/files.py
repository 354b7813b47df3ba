"""Files of the user's: where the cache is, TOML that may be anybody's, folders that may hold what is no file."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError, DataError
from anygrpo.spoken import Text

DEEPEST = 64
"""Tables in tables, lists in lists: no recipe comes near, and Python's recursion ends far behind."""
MARKS = ("config.toml", "metrics.jsonl", "manifest.json")
"""What makes a folder a run or a checkpoint."""


def run_of(path: Path) -> Path:
    """The run folder of RUN/checkpoints/NAME, from wherever it is named; of anything else the path itself."""
    whole = Path(os.path.normpath(path.absolute()))
    run = whole.parent.parent
    return run if whole.parent.name == "checkpoints" and (run / "config.toml").is_file() else path


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
    what = lambda error: Text(f"{path} is not valid TOML: {error}", f"{path} 不是有效的 TOML：{error}")  # noqa: E731
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(what(error), Text("save it as UTF-8", "请另存为 UTF-8")) from None
    try:
        return toml_table(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(what(error), _toml_cure(text, str(error))) from None


_SLIPS_OF_TOML: tuple[tuple[str, Text], ...] = (
    (r"[“”‘’＂＇]", Text('quotes are straight ones: "..."', '引号用英文直引号："..."')),
    (r"[＝：，；【】]", Text("signs are those of ASCII: = , [ ]", "符号用英文半角：= , [ ]")),
    (r"^[\w.\"-]+\s*:", Text("a key and its value stand around =, not :", "键和值之间用 =，不用 :")),
    (r"=\s*(True|False)\b", Text("true and false are written small", "true 和 false 用小写")),
    (r"=\s*(None|null|nil)\b", Text("a setting that is not given is left out", "不设的键请删去这一行")),
    (r"=\s*[+-]?\.\d", Text("a number has a digit before its point: 0.1", "小数点前要有数字：0.1")),
    (r"=\s*[A-Za-z_/~][^\"'{\[]*$", Text('a text stands in quotes: "..."', '文字要加引号："..."')),
    (r"=\s*(#|$)", Text("a value is missing after =", "= 后缺少值")),
)
"""How lines that are no TOML are written most often, and what is meant."""


def _toml_cure(text: str, error: str) -> Text | str:
    """The line that the parser stopped at, with what is usually meant by such a one."""
    found, lines = re.search(r"at line (\d+)", error), text.splitlines()
    if found is None or not 0 < int(found[1]) <= len(lines):
        return ""
    number, line = found[1], lines[int(found[1]) - 1].strip()
    if len(line) > 80:
        line = line[:80] + "..."
    twice = "twice" in error or "overwrite" in error.lower()
    meant = next((said for slip, said in _SLIPS_OF_TOML if re.search(slip, line)), None)
    if twice:
        meant = Text("it stands above already: give it once", "上面已经有了：只写一次")
    if meant is None:
        return Text(f"line {number} is: {line}", f"第 {number} 行：{line}")
    return Text(f"line {number} is {line!r}: {meant.said('en')}", f"第 {number} 行是 {line!r}：{meant.said('zh')}")


def json_value(text: str | bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """A JSON text's value; anybody's, so that one nested without end is told as any other that cannot be read.

    Raises:
        ValueError: not JSON, or nested deeper than Python's reader goes.
    """
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError("nested too deeply") from None


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


def lines_of(text: str) -> list[str]:
    """The lines of JSON Lines: "\\n" alone ends one. `str.splitlines` also cuts at U+2028, U+0085 and others, which
    stand unescaped in the strings of whoever writes JSON as UTF-8."""
    return text.removesuffix("\n").split("\n") if text else []


def yaml_word(text: str) -> str:
    """A name as the head of a README can hold it, whatever it is: anybody's name is to add no line there."""
    return text if re.fullmatch(r"[\w./@+][\w./@+-]*", text) else json.dumps(text, ensure_ascii=False)


def one_line(text: str) -> str:
    """Anybody's words as they can stand in a README: they begin no line, end no code, and are no markup."""
    return " ".join(text.split()).replace("`", "'").replace("<", "&lt;")


MOST = 100_000
"""Values of one file of settings, with every name that stands for others replaced by them."""


def refuse_unending(tree: Any) -> None:
    """A few lines of YAML whose names stand for each other can be 10^9 values, or endless, for whoever walks them.

    Raises:
        DataError: more than `MOST` values, nested too deeply, or within itself.
    """
    sizes: dict[int, float] = {}

    def size(value: Any) -> float:
        if not isinstance(value, dict | list | tuple | set):
            return 1
        if id(value) not in sizes:
            sizes[id(value)] = float("inf")  # what is met again while it is counted holds itself
            inner = [*value, *value.values()] if isinstance(value, dict) else value
            sizes[id(value)] = 1 + sum(map(size, inner))
        return sizes[id(value)]

    try:
        total = size(tree)
    except RecursionError:
        total = float("inf")
    if total > MOST:
        raise DataError(
            Text(f"more than {MOST} settings in one file", f"一个文件中的设置超过 {MOST} 个"),
            Text(
                "does it refer to itself, or to its own parts again and again?",
                "文件是否引用自己，或反复引用自己的部分？",
            ),
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
