"""SQLite files that trackers keep (MLflow's mlflow.db, Optuna's, Trackio's): any table of numbers with steps."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

from anygrpo.doctor.canonical import names_outcome
from anygrpo.doctor.log import Log, Row, flatten, number
from anygrpo.doctor.readers import inferred_rows, long, proof
from anygrpo.errors import DataError
from anygrpo.spoken import Text

MOST = 400_000
"""Rows of one table that are read."""


def looks_like(head: bytes) -> bool:
    return head.startswith(b"SQLite format 3\0")


def read(path: Path, source: str) -> Log:
    """The run of a database.

    Raises:
        DataError: damaged, or it holds several runs.
    """
    logs = read_all(path, source)
    if len(logs) > 1:
        raise long.several(source, [log.source.removeprefix(f"{source}: ") for log in logs])
    return logs[0] if logs else Log(source, "sqlite")


def read_all(path: Path, source: str) -> list[Log]:
    """The runs of the table that training is in; nothing is written, and no journal is made."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as base:
            names = [row[0] for row in base.execute("select name from sqlite_master where type='table'")]
            found = [logs for name in names if (logs := of_table(base, name, source))]
    except sqlite3.Error as error:
        raise DataError(
            Text(f"{source}: a damaged database ({error})", f"{source}：数据库已损坏（{error}）"),
            Text("copy it again", "请重新复制"),
        ) from None
    return max(found, key=weight, default=list[Log]())


def of_table(base: sqlite3.Connection, name: str, source: str) -> list[Log]:
    """The runs of one table: a number a row (key, value, step), columns of numbers, or a column of JSON."""
    quoted = '"' + name.replace('"', '""') + '"'
    cursor = base.execute(f"select * from {quoted} limit {MOST}")
    columns = [column[0] for column in cursor.description]
    rows = ([("" if x is None else str(x)) for x in row] for row in cursor)
    first = next(rows, None)
    if first is None:
        return []
    if (found := long.long_table(columns, chain([first], rows))) is not None:
        return [Log(log.source, "sqlite", log.rows, notes=log.notes) for log in found.logs(source)]
    numbers: list[Row] = []
    for cells in chain([first], rows):
        row: Row = {}
        for column, cell in zip(columns, cells):
            if cell[:1] == "{":
                row |= flatten(of_json(cell))
            elif (x := number(cell)) is not None:
                row[column] = x
        numbers.append(row)
    numbers = inferred_rows.with_steps(numbers)
    return [Log(source, "sqlite", numbers)] if any(names_outcome(k) for r in numbers[:50] for k in r) else []


def of_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {}


def weight(logs: list[Log]) -> int:
    """Rows, times what they measure."""
    return sum(len(log.rows) * len(proof.measured(log.rows)) for log in logs)
