"""Rows of a data set as people have it: JSON Lines, JSON, CSV, Parquet, a saved `datasets` folder, a Hub name. Text
files may be compressed by gzip (.jsonl.gz)."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from anygrpo.core.hub import is_name
from anygrpo.core.hub import split as split_name
from anygrpo.errors import ConfigError, DataError, suggestion
from anygrpo.language.tasks.rows import Columns, row_of
from anygrpo.spoken import NOTHING, Text

Row = tuple[int, dict[str, Any]]
"""(line or row number from 1, the object with its prompt under "prompt")."""

LINES = (".jsonl", ".ndjson")
FILES = (*LINES, ".json", ".csv", ".tsv", ".parquet")
_SAVED = ("dataset_info.json", "dataset_dict.json", "state.json")


def place(path: str, number: int) -> str:
    """Where a row stands: its line, or its number in files that are not read by lines."""
    return f"{path}, {'line' if _form(Path(path)) in LINES else 'row'} {number}"


def _form(file: Path) -> str:
    """The suffix that says what a file is."""
    return (file.with_suffix("") if file.suffix == ".gz" else file).suffix


def _opened(file: Path, newline: str | None = None) -> TextIO:
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding="utf-8-sig", newline=newline)
    return file.open(encoding="utf-8-sig", newline=newline)


def read_rows(
    path: str,
    prompt_column: str,
    split: str = "train",
    subset: str | None = None,
    pictures: Columns = (),
) -> list[Row]:
    """The rows of a file, a folder of such files, a saved data set, or a data set of the Hub (owner/name).

    Args:
        pictures: columns that hold pictures, one or a list of them, or what tells those of a row; they are put into the
            prompt.

    Raises:
        DataError: nothing there, not readable, or a row without a usable prompt; with its place.
        ConfigError: a package that reads this form is not installed.
    """
    folder = home_of(path)
    given = [(n, value, place(path, n)) for n, value in _objects(path, split, subset)]
    rows = [(n, row_of(value, where, prompt_column, pictures, folder)) for n, value, where in given]
    if not rows:
        raise DataError(
            Text(f"{path} holds no rows", f"{path} 中没有任何行"),
            Text("give it at least one object with a prompt", "请至少给出一个带提示的对象"),
        )
    return rows


def home_of(path: str) -> Path | None:
    """The folder from which a data file names its pictures."""
    file = Path(path).expanduser()
    return file if file.is_dir() else file.parent if file.is_file() else None


def _objects(path: str, split: str, subset: str | None) -> Iterator[tuple[int, Any]]:
    file = Path(path).expanduser()
    if file.is_dir():
        yield from _folder(file, split, subset)
    elif file.is_file():
        yield from _file(file, path, split)
    elif is_name(path) and _form(file) not in FILES:
        yield from enumerate(_hub(path, split, subset), 1)
    else:
        raise DataError(
            Text(f"no data file {path}, looked in {Path.cwd()}", f"没有数据文件 {path}，查找位置 {Path.cwd()}"),
            Text("correct task.path", "请改正 task.path"),
        )


def _folder(folder: Path, split: str, subset: str | None) -> Iterator[tuple[int, Any]]:
    if any((folder / name).is_file() for name in _SAVED):
        datasets = _package("datasets", "a saved data set")
        saved = datasets.load_from_disk(str(folder))
        yield from enumerate(_split(saved, split, str(folder)), 1)
        return
    files = sorted(f for f in folder.rglob("*") if _form(f) in FILES and f.is_file())
    named = [f for f in files if split in f.stem]
    if not files:
        raise DataError(
            Text(
                f"{folder} holds no data: no {', '.join(FILES)} and no saved data set",
                f"{folder} 中没有数据：没有 {', '.join(FILES)}，也没有保存的数据集",
            ),
            Text("correct task.path", "请改正 task.path"),
        )
    count = 0
    for file in named or files:
        for _, value in _file(file, str(file), split):
            count += 1
            yield count, value


def _split(saved: Any, split: str, path: str) -> Any:
    """The rows of one split, where a data set has several."""
    if not hasattr(saved, "keys"):
        return saved
    if split not in saved:
        raise DataError(
            Text(
                f"{path} has splits {sorted(saved)}; {suggestion(split, saved)}",
                f"{path} 的划分为 {sorted(saved)}；{suggestion(split, saved)}",
            ),
            Text("set task.split", "请设置 task.split"),
        )
    return saved[split]


def _hub(name: str, split: str, subset: str | None) -> Any:
    datasets = _package("datasets", f"the data set {name!r} of the Hub")
    repository, revision = split_name(name)
    try:
        return datasets.load_dataset(repository, subset, split=split, revision=revision)
    except Exception as error:  # a dozen kinds: no network, no such name, a script, a gate
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(
            Text(
                f"cannot load the data set {name!r}, split {split!r}: {first}",
                f"无法加载数据集 {name!r} 的划分 {split!r}：{first}",
            ),
            Text("correct task.path", "请改正 task.path"),
        ) from None


def _file(file: Path, path: str, split: str) -> Iterator[tuple[int, Any]]:
    try:
        if _form(file) == ".json":
            yield from _json(file, path, split)
        else:
            yield from _READERS.get(_form(file), _lines)(file, path)
    except (gzip.BadGzipFile, EOFError) as error:
        raise DataError(
            Text(f"{path} is not a whole gzip file: {error}", f"{path} 不是完整的 gzip 文件：{error}"),
            Text("write it again", "请重新写出"),
        ) from None
    except UnicodeDecodeError as error:
        raise DataError(
            Text(
                f"{path} is not UTF-8 text: {error.reason} at byte {error.start}",
                f"{path} 不是 UTF-8 文本：第 {error.start} 字节处 {error.reason}",
            ),
            Text("save it as UTF-8", "请存为 UTF-8"),
        ) from None


def _lines(file: Path, path: str) -> Iterator[tuple[int, Any]]:
    with _opened(file) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, _parsed(line, f"{path}, line {number}")


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        at = (
            Text(f" at column {error.colno}", f"（第 {error.colno} 列）")
            if isinstance(error, json.JSONDecodeError)
            else NOTHING
        )
        detail = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise DataError(
            Text(f"{where}: broken JSON: {detail}", f"{where}：JSON 已损坏：{detail}") + at,
            Text("write one JSON object a line", "请每行写一个 JSON 对象"),
        ) from None


def _json(file: Path, path: str, split: str) -> Iterator[tuple[int, Any]]:
    """A list of objects, an object whose only list they are, columns of one length, splits by name, or JSON Lines by
    another name."""
    with _opened(file) as opened:
        text = opened.read()
    try:
        value = json.loads(text)
    except ValueError as error:
        if len(text.strip().splitlines()) > 1 and text.lstrip().startswith("{"):
            yield from _lines(file, path)
            return
        raise DataError(
            Text(f"{path}: broken JSON: {error}", f"{path}：JSON 已损坏：{error}"),
            Text("write a list of objects", "请写成对象的列表"),
        ) from None
    except RecursionError as error:
        raise DataError(
            Text(f"{path}: broken JSON: {error}", f"{path}：JSON 已损坏：{error}"),
            Text("write a list of objects", "请写成对象的列表"),
        ) from None
    if isinstance(value, dict):
        lists = {k: v for k, v in value.items() if isinstance(v, list)}
        of_objects = all(v and all(isinstance(row, dict) for row in v) for v in lists.values())
        if len(lists) > 1 and of_objects and not {"prompt", "messages"} & lists.keys():
            value = _split(lists, split, path)
        elif len(lists) == 1:
            value = next(iter(lists.values()))
        elif lists and len(lists) == len(value) and len({len(v) for v in lists.values()}) == 1:
            value = [dict(zip(lists, row)) for row in zip(*lists.values())]
        else:
            value = [value]
    if not isinstance(value, list):
        raise DataError(
            Text(
                f"{path} holds a {type(value).__name__}, not a list of objects",
                f"{path} 中是 {type(value).__name__}，不是对象的列表",
            ),
            Text("write a list of objects", "请写成对象的列表"),
        )
    yield from enumerate(value, 1)


def _csv(file: Path, path: str) -> Iterator[tuple[int, Any]]:
    """Cells are texts; one that holds a JSON list or object is read as such."""
    csv.field_size_limit(2**30)
    with _opened(file, newline="") as lines:
        head = lines.readline()
        lines.seek(0)
        reader = csv.DictReader(lines, delimiter="\t" if _form(file) == ".tsv" else _delimiter(head))
        for number, row in enumerate(reader, 1):
            if None in row:
                raise DataError(
                    Text(
                        f"{path}, row {number} has more cells than the header", f"{path} 第 {number} 行的单元格比表头多"
                    ),
                    Text("quote cells with commas", "含逗号的单元格请加引号"),
                )
            yield number, {name: _cell(value) for name, value in row.items()}


def _delimiter(head: str) -> str:
    """The sign that parts the names of the header: the commonest of these, outside quotes; a comma where none is."""
    bare = "".join(head.split('"')[::2])
    return max(",;\t|", key=bare.count)


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _parquet(file: Path, path: str) -> Iterator[tuple[int, Any]]:
    parquet = _package("pyarrow.parquet", f"{path}")
    try:
        table = parquet.read_table(file)
    except Exception as error:  # pyarrow's own kinds
        raise DataError(
            Text(f"{path} cannot be read as Parquet: {error}", f"{path} 不能作为 Parquet 读取：{error}"),
            Text("write it again", "请重新写出"),
        ) from None
    yield from enumerate(table.to_pylist(), 1)


_READERS = {".csv": _csv, ".tsv": _csv, ".parquet": _parquet}


def _package(name: str, what: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.split(".")[0]
        raise ConfigError(
            Text(
                f"{what} is read by the package {package}, which is not installed",
                f"{what} 由 {package} 包读取，但没有安装",
            ),
            "pip install 'anygrpo[data]'",
        ) from None
