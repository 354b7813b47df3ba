"""JSON, JSONL and CSV of any keys; TRL's trainer_state.json is the JSON that has a `log_history`."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any, cast

from anygrpo.doctor.log import Log, Row, flatten, number
from anygrpo.doctor.readers import wandb
from anygrpo.errors import DataError

STATE_SETTINGS = ("max_steps", "logging_steps", "num_train_epochs", "train_batch_size", "global_step")
EXPORT = re.compile(r"__(MIN|MAX)$")


def read_json(text: str, source: str) -> Log:
    """One JSON document.

    Raises:
        DataError: not JSON, or no table of numbers in it.
    """
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{source}: not valid JSON ({str(error)[:120]})", "give the whole file") from None
    if isinstance(data, dict):
        return from_object(cast(dict[str, Any], data), source)
    if isinstance(data, list):
        return Log(source, "json", rows_of(cast(list[Any], data)))
    raise DataError(f"{source}: a JSON {type(data).__name__} is no log", "give rows of metrics")


def from_object(data: dict[str, Any], source: str) -> Log:
    if isinstance(history := data.get("log_history"), list):
        log = Log(source, "trl-state", rows_of(cast(list[Any], history)))
        log.settings = {k: data[k] for k in STATE_SETTINGS if isinstance(data.get(k), int | float)}
        return log
    if "_wandb" in data or "_runtime" in data:
        return wandb.summary(data, source)
    for value in data.values():  # {"history": [{...}, ...]} under any name
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return Log(source, "json", rows_of(cast(list[Any], value)))
    columns = {k: cast(list[Any], v) for k, v in data.items() if isinstance(v, list) and v}
    if columns:
        return Log(source, "json", rows_of_columns(columns))
    row = flatten(data)
    return Log(source, "json", [row] if row else [])


def rows_of(items: list[Any]) -> list[Row]:
    return [row for row in (flatten(item) for item in items) if row]


def rows_of_columns(columns: dict[str, list[Any]]) -> list[Row]:
    rows: list[Row] = []
    for i in range(max(map(len, columns.values()))):
        found = {k: number(v[i]) for k, v in columns.items() if i < len(v)}
        rows.append({k: x for k, x in found.items() if x is not None})
    return [row for row in rows if row]


def read_jsonl(text: str, source: str) -> Log:
    """One object a line; torn and foreign lines are counted, not fatal."""
    log, bad = Log(source, "jsonl"), 0
    for line in text.splitlines():
        line = line.strip()
        if not line:
            continue
        try:
            item = json.loads(line)
        except (ValueError, RecursionError):
            bad += 1
            continue
        if isinstance(item, dict) and (row := flatten(item)):
            log.rows.append(row)
    if bad:
        log.notes.append(f"{bad} lines were not JSON and were left out")
    return log


def read_csv(text: str, source: str) -> Log:
    """A table with a header. wandb's export adds "run - " before names and __MIN, __MAX behind: both are undone."""
    delimiter = "\t" if text[:4096].count("\t") > text[:4096].count(",") else ","
    log = Log(source, "csv")
    try:
        table = csv.reader(io.StringIO(text), delimiter=delimiter)
        header = [cell.strip() for cell in next(table, list[str]())]
        names = [name.split(" - ", 1)[-1] for name in header]
        if len(set(names)) < len(names) - sum(bool(EXPORT.search(n)) for n in names):
            names = header
        for cells in table:
            found = {n: number(c) for n, c in zip(names, cells) if n and not EXPORT.search(n)}
            if row := {n: x for n, x in found.items() if x is not None}:
                log.rows.append(row)
    except csv.Error as error:
        raise DataError(f"{source}: not a readable table ({error})", "give CSV with one header line") from None
    return log
