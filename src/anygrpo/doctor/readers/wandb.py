"""wandb offline files (`run-*.wandb`) and summaries (`wandb-summary.json`), without wandb."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from anygrpo.doctor.log import Log, Row, flatten
from anygrpo.doctor.readers import wire

HEADER = b":W&B"
HISTORY, SUMMARY, CONFIG, RUN, EXIT = 2, 3, 5, 17, 18  # fields of wandb_internal.Record
KEY, NESTED, VALUE = 1, 2, 16  # fields of HistoryItem, SummaryItem, ConfigItem
OF_RUN = {6: "wandb.group", 8: "wandb.name"}  # fields of RunRecord
INTERNAL = ("_wandb", "_timestamp", "_runtime")


def looks_like(head: bytes) -> bool:
    return head.startswith(HEADER)


def read(path: Path, source: str) -> Log:
    """History rows, the run's config as settings, and the summary of one offline file."""
    log = Log(source, "wandb")
    with wire.mapped(path) as data:
        records = list(wire.leveldb_records(data, at=7))
    for record in records:
        for number, kind, payload in wire.fields(record):
            if kind != 2:
                continue
            message = cast(bytes, payload)
            if number == HISTORY:
                if row := row_of(items(message, 1)):
                    log.rows.append(row)
            elif number == CONFIG:
                settings(log, items(message, 1))
            elif number == RUN:
                for inner, inner_kind, value in wire.fields(message):
                    if inner == 4 and inner_kind == 2:
                        settings(log, items(cast(bytes, value), 1))
                    elif inner in OF_RUN and inner_kind == 2 and value:
                        log.settings[OF_RUN[inner]] = cast(bytes, value).decode("utf-8", "replace")
    return log


def row_of(item: dict[str, Any]) -> Row:
    """The numbers of one row, wandb's own left out; `_step` counts the steps where nothing else does. A row of steps
    alone is empty."""
    row = {k: v for k, v in flatten(item).items() if not k.startswith(INTERNAL)}
    if "_step" in row:
        row.setdefault("step", row.pop("_step"))
    return row if set(row) - {"step"} else {}


def items(message: bytes, field: int) -> dict[str, Any]:
    """key -> decoded JSON of the repeated items in a History, Summary or Config record."""
    out: dict[str, Any] = {}
    for number, kind, payload in wire.fields(message):
        if number != field or kind != 2:
            continue
        names: list[str] = []
        value: Any = None
        for inner, inner_kind, content in wire.fields(cast(bytes, payload)):
            if inner_kind != 2:
                continue
            text = cast(bytes, content).decode("utf-8", "replace")
            if inner in (KEY, NESTED):
                names.append(text)
            elif inner == VALUE:
                value = loads(text)
        if names:
            out["/".join(n for n in names if n)] = value
    return out


def loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def settings(log: Log, found: dict[str, Any]) -> None:
    for key, value in found.items():
        if isinstance(value, dict) and set(cast(dict[str, Any], value)) <= {"value", "desc"}:
            value = cast(dict[str, Any], value).get("value")
        if isinstance(value, str | int | float | bool):
            log.settings[key.replace("/", ".")] = value


def summary(data: dict[str, Any], source: str) -> Log:
    """A wandb-summary.json is the last value of everything: one row, so no trend can be read from it."""
    return Log(source, "wandb-summary", [row_of(data)], notes=["a summary holds only the last value of every metric"])
