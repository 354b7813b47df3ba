"""JSON of other shapes: a list of points under each metric's name, a row under each step, a name beside each value."""

from __future__ import annotations

from typing import Any, cast

from anygrpo.doctor.canonical import names_outcome
from anygrpo.doctor.log import Row, flatten, number

NAMES = ("name", "metric", "key", "tag", "metricName", "metric_name")
VALUES = ("value", "metricValue", "metric_value", "val")
POINTS = ("points", "data", "values", "history", "series")
Json = dict[str, Any]


def rows_of_document(data: Json) -> list[Row]:
    """Rows of a document of one of these shapes; empty where it has none.

    {"reward": [[time, step, value], ...]}, {"metrics": [{"name": "reward", "points": [[step, value], ...]}]},
    {"12": {"reward": .3}, "13": ...}.
    """
    series = {str(k): v for k, v in data.items() if is_points(v)}
    for value in data.values():
        for item in cast(list[Any], value) if isinstance(value, list) else ():
            if isinstance(item, dict) and (name := name_in(cast(Json, item))):
                found = next((x for p in POINTS if is_points(x := cast(Json, item).get(p))), None)
                series |= {name: found} if found else {}
    if any(names_outcome(name) for name in series):
        return by_step([(point[-2], name, point[-1]) for name, points in series.items() for point in points])
    return rows_of_steps(data)


def rows_of_steps(data: Json) -> list[Row]:
    """{"12": {"reward": .3}, "13": {...}}: the key is the step where the row has none."""
    if len(data) < 2 or not all(k.isdigit() and isinstance(v, dict) for k, v in data.items()):
        return []
    return [{"step": float(k)} | flatten(v) for k, v in sorted(data.items(), key=lambda p: int(p[0]))]


def is_points(value: Any) -> bool:
    """[[step, value], ...] or [[time, step, value], ...]."""
    items = cast(list[Any], value) if isinstance(value, list) else []
    return len(items) > 1 and all(
        isinstance(p, list) and len(cast(list[Any], p)) in (2, 3) and number(p[-1]) is not None for p in items[:50]
    )


def by_step(cells: list[tuple[Any, str, Any]]) -> list[Row]:
    """One row a step of (step, name, value)."""
    rows: dict[float, Row] = {}
    for step, name, value in cells:
        at, x = number(step), number(value)
        if at is not None and x is not None:
            rows.setdefault(at, {"step": at})[name] = x
    return [rows[s] for s in sorted(rows)]


def name_in(item: Json) -> str:
    return next((str(item[k]) for k in NAMES if isinstance(item.get(k), str)), "")


def named(item: Json) -> Row:
    """{"name": "reward", "step": 3, "value": .4} as {"step": 3, "reward": .4}; empty for anything else.

    A row of metrics may hold a name (of the run) and a value (of a critic) too: it is read whole.
    """
    name = name_in(item)
    if not name or any(names_outcome(key) for key in flatten(item)):
        return {}
    value = next((x for k in VALUES if (x := number(item.get(k))) is not None), None)
    step = number(item.get("step", item.get("global_step")))
    return {"step": step, name: value} if name and value is not None and step is not None else {}


def merged(rows: list[Row]) -> list[Row]:
    """Rows of one number each as one row a step, where several names are among them; else as they are."""
    if not all(len(row) == 2 and "step" in row for row in rows) or len({k for row in rows for k in row}) < 3:
        return rows
    return by_step([(row["step"], k, x) for row in rows for k, x in row.items() if k != "step"])
