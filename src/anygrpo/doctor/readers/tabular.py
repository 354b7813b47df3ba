"""JSON, JSONL and CSV of any keys; TRL's trainer_state.json is the JSON that has a `log_history`."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, cast

from anygrpo.doctor.canonical import names_outcome
from anygrpo.doctor.log import Log, Row, flatten, number
from anygrpo.doctor.readers import console, documents, long, nested_tables, proof, tracker_tables, wandb
from anygrpo.doctor.readers.shapes import COLUMN, table_rows
from anygrpo.doctor.readers.source import Rows
from anygrpo.doctor.readers.training_rows import main_list, with_outcomes
from anygrpo.errors import DataError
from anygrpo.spoken import Text

STATE_SETTINGS = ("max_steps", "logging_steps", "num_train_epochs", "train_batch_size", "global_step")
EXPORT = re.compile(r"__(MIN|MAX)$|_timestamp$")
POINT = re.compile(r"^\s*([-+]?\d+),(\d+(?:[eE][-+]?\d+)?)\s*$")
"""A number with a decimal comma, in a table whose cells commas do not part."""


def read_json(text: str, source: str) -> Log:
    """One JSON document.

    Raises:
        DataError: not JSON, or no table of numbers in it.
    """
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            Text(f"{source}: not valid JSON ({str(error)[:120]})", f"{source}：不是有效的 JSON（{str(error)[:120]}）"),
            Text("give the whole file", "请给出完整的文件"),
        ) from None
    if not isinstance(data, dict | list):
        raise DataError(
            Text(
                f"{source}: a JSON {type(data).__name__} is no log",
                f"{source}：JSON 是 {type(data).__name__}，不是日志",
            ),
            Text("give rows of metrics", "请给出由指标组成的行"),
        )
    log = (
        from_object(cast(dict[str, Any], data), source)
        if isinstance(data, dict)
        else Log(source, "json", rows_of(cast(list[Any], data)))
    )
    if log.format == "json" and proof.better(found := nested_tables.best_table(data), log.rows):
        log.rows = found
    return log


def from_object(data: dict[str, Any], source: str) -> Log:
    if isinstance(history := data.get("log_history"), list):
        log = Log(source, "trl-state", rows_of(cast(list[Any], history)))
        log.settings = {k: data[k] for k in STATE_SETTINGS if isinstance(data.get(k), int | float)}
        return log
    if "_wandb" in data or "_runtime" in data:
        return wandb.summary(data, source)
    if rows := documents.rows_of_document(data):
        return Log(source, "json", rows)
    if lists := lists_of_rows(data):  # {"history": [{...}, ...]} under any name
        return Log(source, "json", main_list(lists))
    columns = {k: cast(list[Any], v) for k, v in data.items() if isinstance(v, list) and v}
    if columns:
        return Log(source, "json", rows_of_columns(columns))
    for name, value in data.items():  # {"config": {...}, "history": {"step": [...], "reward": [...]}}
        inner = cast(dict[str, Any], value) if isinstance(value, dict) else {}
        lists = {k: cast(list[Any], v) for k, v in inner.items() if isinstance(v, list)}
        if len(lists) > 1 and len({len(v) for v in lists.values()}) == 1 and len(next(iter(lists.values()))) > 1:
            rest = flatten({k: v for k, v in data.items() if k != name})
            return Log(
                source, "json", rows_of_columns(lists), settings={k.replace("/", "."): x for k, x in rest.items()}
            )
    row = flatten(data)
    return Log(source, "json", [row] if row else [])


def lists_of_rows(data: dict[str, Any], depth: int = 2) -> list[tuple[str, list[Row]]]:
    """(name, rows) of the lists of objects in a document, those of its inner objects behind its own."""
    out: list[tuple[str, list[Row]]] = []
    for name, value in data.items():
        items = cast(list[Any], value) if isinstance(value, list) else []
        if items and isinstance(items[0], dict):
            out.append((name, rows_of(items)))
    for name, value in data.items() if depth > 1 else ():
        if isinstance(value, dict):
            inner = lists_of_rows(cast(dict[str, Any], value), depth - 1)
            out += [(f"{name}_{under}", rows) for under, rows in inner if with_outcomes(rows)]
    return out


def rows_of(items: list[Any]) -> list[Row]:
    return [row for row in (flatten(item) for item in items) if row]


def rows_of_columns(columns: dict[str, list[Any]]) -> list[Row]:
    rows: list[Row] = []
    for i in range(max(map(len, columns.values()))):
        found = {k: number(v[i]) for k, v in columns.items() if i < len(v)}
        rows.append({k: x for k, x in found.items() if x is not None})
    return [row for row in rows if row]


def read_jsonl(text: Iterable[str], source: str) -> Log:
    """One object a line; torn and foreign lines are counted, not fatal."""
    rows, bad, said, skipped = Rows(), 0, list[str](), ""
    for line in text:
        line = line.strip().lstrip("\ufeff")
        if not line:
            continue
        skipped = "" if rows.wanted(line) else line
        if skipped:
            rows.skip()
        else:
            bad += not added(rows, line, said)
    if skipped:
        bad += not added(rows, skipped, said)  # the last row is always there
    if said and not any(names_outcome(key) for row in rows[:200] for key in row):
        return console.read(said, source)  # each line wraps what a console would have shown
    log = Log(source, "jsonl", documents.merged(rows), notes=rows.note)
    if bad:
        log.notes.append(f"{bad} lines were not JSON and were left out")
    return log


def added(rows: Rows, line: str, said: list[str]) -> bool:
    """Whether the line was JSON; a row of numbers is appended, and to `said` a text that was wrapped."""
    try:
        item = json.loads(line)
    except (ValueError, RecursionError):
        return False
    if isinstance(item, dict):
        if len(said) < SAID and (message := message_of(cast(dict[str, Any], item))):
            said.append(message)
        if row := documents.named(cast(dict[str, Any], item)) or flatten(item):
            rows.append(row)
    return True


SAID = 200_000
"""Wrapped lines of a log that are kept."""


def message_of(item: dict[str, Any], depth: int = 3) -> str:
    """The text that a structured logger wrapped: under "message", "msg", "log" or "text", at any depth to 3."""
    for key in ("message", "msg", "log", "text"):
        if isinstance(found := item.get(key), str) and found.strip() and any(c.isdigit() for c in found):
            return found.rstrip("\n")
    inner = (cast(dict[str, Any], x) for x in item.values() if isinstance(x, dict)) if depth > 1 else ()
    return next((found for x in inner if (found := message_of(x, depth - 1))), "")


def read_csv(text: Iterable[str], source: str, head: str) -> Log:
    """A table with a header. wandb's export adds "run - " before names and __MIN, __MAX behind: both are undone."""
    delimiter = max("\t;,", key=head.split("\n")[0].count)
    rows = Rows()
    try:
        table = csv.reader(worth_parsing(text, rows), delimiter=delimiter)
        if delimiter != ",":
            table = ([POINT.sub(r"\1.\2", cell) for cell in cells] for cells in table)
        header = [cell.strip().lstrip("\ufeff") for cell in next(table, list[str]())]
        names = [name.split(" - ", 1)[-1] for name in header]
        if len(set(names)) < len(names) - sum(bool(EXPORT.search(n)) for n in names):
            names = header
        body = [cells for _, cells in zip(range(64), table)]
        if (found := long.long_table(names, chain(body, table))) is not None:
            return found.only(source)
        if len(runs := tracker_tables.runs_of(header)) == 1:
            names = [next(iter(runs.values())).get(name, name) for name in header]
        if turned := metrics_as_rows(names, body):
            return Log(source, "csv", turned)
        for cells in chain(body, table):
            found = {n: number(c) for n, c in zip(names, cells) if n and not EXPORT.search(n)}
            if row := {n: x for n, x in found.items() if x is not None}:
                rows.append(row)
    except csv.Error as error:
        raise DataError(
            Text(f"{source}: not a readable table ({error})", f"{source}：不是可读的表（{error}）"),
            Text("give CSV with one header line", "请给出有一行表头的 CSV"),
        ) from None
    return Log(source, "csv", rows, notes=rows.note)


def worth_parsing(text: Iterable[str], rows: Rows) -> Iterator[str]:
    """Lines of a table, without those whose row would not be kept."""
    for line in text:
        if '"' in line or rows.wanted(line):
            yield line.replace("\0", "")
        else:
            rows.skip()


def metrics_as_rows(names: list[str], body: list[list[str]]) -> list[Row]:
    """Rows of a small table that has metrics as rows and steps as columns; empty where it stands the usual way."""
    first = [number(cells[0]) for cells in body if cells]
    if not body or any(x is not None for x in first) or len(names) < 3 or len({len(c) for c in body}) != 1:
        return []
    return table_rows(names, body) if all(COLUMN.match(n) for n in names[1:]) else []
