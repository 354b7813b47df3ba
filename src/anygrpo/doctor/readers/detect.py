"""What a path is, by its content, and the reader for it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from anygrpo.doctor.canonical import names_outcome
from anygrpo.doctor.log import Log
from anygrpo.doctor.readers import (
    big_documents,
    columnar,
    console,
    database,
    inferred_rows,
    long,
    markup,
    notebook,
    tabular,
    tensorboard,
    tracker_tables,
    wandb,
)
from anygrpo.doctor.readers.beside import add_settings
from anygrpo.doctor.readers.held_out_pairs import add_gains
from anygrpo.doctor.readers.source import PACKED, at_hand, encoding_of, lines, size
from anygrpo.errors import DataError
from anygrpo.spoken import Text

BY_HEAD = (tensorboard, wandb, database, columnar)
"""Readers of a form of their own, known by the file's first bytes: `looks_like(head)`, `read(path, source) -> Log`."""
CHECKPOINT = re.compile(r"checkpoint-(\d+)$")


def read_all(path: str | Path) -> list[Log]:
    """Every run found at a path: several where a table has one column a run, as trackers export it.

    Raises:
        DataError: as `read`.
    """
    where = Path(path)
    if os.path.isfile(where) and (  # where Path's own raises: a name too long
        found := runs_of_database(where, str(path)) or tracker_tables.tables_of_runs(where, str(path))
    ):
        return found
    if os.path.isdir(where) and not of_trainer(where):
        found = tracker_tables.folder_of_tags(where, str(path))
        if len(found) > 1 and any(measures(log) for log in found):
            return found
    return [read(path)]


def runs_of_database(path: Path, source: str) -> list[Log]:
    """Several runs of one database; else empty."""
    with path.open("rb") as handle:
        found = database.read_all(path, source) if database.looks_like(handle.read(16)) else []
    return found if len(found) > 1 else []


def measures(log: Log) -> bool:
    """Whether any column is one of training."""
    return any(names_outcome(key) for row in log.rows[:50] for key in row)


def read(path: str | Path) -> Log:
    """Read one log: a file, a compressed file, a folder, or "-" for standard input.

    A file without any numbers of a training run comes back as a log without rows: that, too, is an answer.

    Raises:
        DataError: nothing there, nothing readable, or a file without a byte in it.
    """
    source = str(path)
    try:
        if source != "-" and (Path(path).is_char_device() or Path(path).is_block_device()):  # it may have no end
            raise DataError(
                Text(f"{source} is a device", f"{source} 是设备"),
                Text("give a file, or - for a pipe", "请给出文件，管道用 -"),
            )
        with at_hand(path) as (where, name, left):
            log = folder(where, source) if where.is_dir() else file(where, source, Path(name).suffix, name)
    except OSError as error:
        raise DataError(
            Text(
                f"{source}: cannot be read ({error.strerror or error})",
                f"{source}：无法读取（{error.strerror or error}）",
            ),
            Text("check the path and its rights", "请检查路径及其权限"),
        ) from None
    log.notes += [left] if left else []
    return log if log.format == "run-folder" or log.settings or source == "-" else add_settings(log, Path(path))


def file(path: Path, source: str, suffix: str | None = None, name: str = "") -> Log:
    """By content, not by name; with the settings that stand beside it, and with steps under a known name."""
    log = content(path, source, suffix, name)
    log.rows = inferred_rows.counted_rows(log.rows)
    return add_settings(log, path)


def content(path: Path, source: str, suffix: str | None, name: str) -> Log:
    with path.open("rb") as handle:
        head = handle.read(4096)
    if not head.strip():
        said = Text(f"begins with {len(head)} blank bytes", f"以 {len(head)} 个空白字节开头")
        said = said if head else Text("is empty", "是空的")
        raise DataError(
            Text(f"{source}: the file {said.en}", f"{source}：文件{said.zh}"),
            Text("give a log with at least one row", "请给出至少有一行的日志"),
        )
    for reader in BY_HEAD:
        if reader.looks_like(head):
            return reader.read(path, source)
    encoding = encoding_of(head)
    start = head.decode(encoding, "ignore").lstrip("\ufeff \t\r\n")
    suffix = path.suffix if suffix is None else suffix
    if (rows := tracker_tables.one_tag(path, name or path.name)) is not None:
        return Log(source, "exported-tags", rows)
    if notebook.is_page(start):
        return console.read(notebook.html_lines(path.read_text(encoding, "replace")), source)
    if markup.is_xml(start) and (rows := markup.rows_of(path)):
        return Log(source, "xml", rows)
    if start[:1] in "{[" and (log := json_like(path, start, encoding, source, suffix)):
        return log
    if is_table(start):
        if len(runs := tracker_tables.tables_of_runs(path, source)) > 1:
            raise long.several(source, [log.source.removeprefix(f"{source}: ") for log in runs])
        return tabular.read_csv(lines(path, encoding), source, start[:4096])
    return console.read(lines(path, encoding), source)


LONG = 24 << 20
"""Bytes from which a JSON document is read piece by piece."""


def json_like(path: Path, start: str, encoding: str, source: str, suffix: str) -> Log | None:
    """A document, or one object a line; None where it only looked so (a console that begins with a bracket)."""
    first = next(lines(path, encoding), "").strip()
    if first.startswith("{") and first.endswith("}") and parses(first) and not one_document(path, encoding, first):
        if len(runs := tracker_tables.tables_of_runs(path, source)) > 1:
            raise long.several(source, [log.source.removeprefix(f"{source}: ") for log in runs])
        return tabular.read_jsonl(lines(path, encoding), source)
    if size(path) > LONG:
        return big_documents.read(path, encoding, source)
    content = path.read_text(encoding, "replace").lstrip("\ufeff")
    if (printed := notebook.of_notebook(content)) is not None:
        return console.read(printed, source)
    if parses(content):
        return tabular.read_json(content, source)
    if start.startswith(('{"', "{\n", "{ ", "[{", "[\n", "[[", '{"')) and suffix == ".json":
        return tabular.read_json(content, source)
    return None


def one_document(path: Path, encoding: str, first: str) -> bool:
    """Whether the first line is all there is, and holds a history rather than one row."""
    if size(path) > len(first.encode(encoding)) + 8:
        return False
    data: Any = json.loads(first)
    return any(isinstance(v, list | dict) for v in data.values()) or "_runtime" in data


def parses(content: str) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def is_table(start: str) -> bool:
    """A header of names and a second line of as many cells, mostly numbers."""
    head = start.split("\n")[:2]
    if len(head) < 2:
        return False
    for mark in (",", "\t", ";"):
        names, cells = head[0].split(mark), head[1].split(mark)
        numbers = sum(
            bool(re.fullmatch(r'\s*"?[-+]?[\d.]+(?:,\d+)?(?:[eE][-+]?\d+)?"?\s*|\s*"?(?:nan|inf)"?\s*', c, re.I))
            for c in cells
        )
        worded = all(re.fullmatch(r'\s*"?[^\W\d][^{}=]*"?\s*|\s*"?\d{1,7}"?\s*', n) for n in names)
        worded = worded and not names[0].strip().strip('"').isdigit()
        if len(names) > 1 and len(names) == len(cells) and worded and numbers * 2 >= len(cells) - cells.count(""):
            return True
    return False


def settings_of(path: Path) -> dict[str, Any]:
    """The settings of one of our runs, so that its log is judged as the live doctor judged it."""
    from anygrpo.doctor.configs import read_settings

    try:
        return read_settings(path)
    except DataError:
        return {}


def of_trainer(path: Path) -> list[Path]:
    """The log that a trainer keeps in its folder: metrics.jsonl, trainer_state.json (the newest), event files."""
    for name in ("metrics.jsonl", "trainer_state.json"):
        if (path / name).is_file():
            return [path / name]
    checkpoints = [(int(m[1]), p) for p in path.iterdir() if (m := CHECKPOINT.search(p.name)) and p.is_dir()]
    for _, checkpoint in sorted(checkpoints, reverse=True):
        if (state := checkpoint / "trainer_state.json").is_file():
            return [state]
    return sorted(path.rglob("*tfevents*"), key=lambda p: p.name)


def folder(path: Path, source: str) -> Log:
    """A run folder, a checkpoint, a folder of checkpoints, a TensorBoard or wandb folder, a folder of exports."""
    kept = of_trainer(path)
    if kept and "tfevents" in kept[0].name:
        return joined([file(p, source) for p in kept], source)
    if kept:
        log = file(kept[0], source)
        if kept[0].name == "metrics.jsonl" and (path / "config.toml").is_file():
            log.format = "run-folder"
            log.settings |= settings_of(path / "config.toml")
            add_gains(path, log.rows)
        return log
    tags = tracker_tables.folder_of_tags(path, source)
    if any(measures(log) for log in tags):
        if len(tags) > 1:
            raise long.several(source, [log.source.removeprefix(f"{source}: ") for log in tags])
        return tags[0]
    for pattern in (
        "*.wandb",
        "files/wandb-summary.json",
        "wandb-summary.json",
        "*.jsonl",
        "*.csv",
        "*.log",
        "*.out",
        "*.txt",
        "*.json",
    ):
        for found in sorted([*path.rglob(pattern), *(f for end in PACKED for f in path.rglob(pattern + end))]):
            try:
                with at_hand(found) as (where, name, left):
                    log = file(where, source, Path(name).suffix)
                    log.notes += [left] if left else []
            except DataError:
                continue
            if log.rows and not (tags and log.format == "exported-tags"):
                return log
    if len(tags) == 1:  # of names that nobody knows: --map says what they are
        return tags[0]
    raise DataError(
        Text(f"{source}: no log found in this folder", f"{source}：这个文件夹中没有日志"),
        Text("give the file itself", "请直接给出文件"),
    )


def joined(logs: list[Log], source: str) -> Log:
    """Event files of one run (resumes write a new file each): rows in the order of the files, equal steps merged."""
    by_step: dict[float, dict[str, float]] = {}
    for log in logs:
        for row in log.rows:
            by_step.setdefault(row["step"], {}).update(row)
    notes = [note for log in logs for note in log.notes]
    return Log(source, "tensorboard", [by_step[step] for step in sorted(by_step)], notes=notes)
