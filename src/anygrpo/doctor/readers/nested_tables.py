"""Tables anywhere in a nested document: rows, columns, lists under a head, numbers by index, points under a name."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from anygrpo.doctor.canonical import names_outcome
from anygrpo.doctor.log import Row, flatten, number
from anygrpo.doctor.readers import documents, proof
from anygrpo.doctor.readers.template import TENSOR

HEADS = ("columns", "header", "headers", "head", "fields", "keys", "names", "schema")
BODIES = ("data", "rows", "values", "body", "items", "records")
STEPS = ("steps", "step", "x", "epochs", "iterations", "iters", "index")
POINTS = ("values", "value", "y", "data", "history", "points")
DEPTH = 6
Json = dict[str, Any]


def best_table(data: Any) -> list[Row]:
    """Of all tables in a document the one that training is in: most metrics, steps that climb, most rows."""
    found = [rows for rows in tables(data, DEPTH) if proof.proved(rows)]
    return max(found, key=lambda r: (len(proof.measured(r)), proof.counted(r), len(r)), default=list[Row]())


def tables(data: Any, depth: int) -> Iterator[list[Row]]:
    """Every reading of a value, and of what is in it, as rows."""
    items = cast(list[Any], data) if isinstance(data, list) else []
    inner = cast(Json, data) if isinstance(data, dict) else {}
    if len(items) > 1:
        yield from of_list(items)
    if len(inner) > 1:
        yield from of_object(inner)
    if depth > 1:
        for child in [*inner.values(), *(items if len(items) <= 32 else [])]:
            if isinstance(child, dict | list):
                yield from tables(child, depth - 1)


def of_list(items: list[Any]) -> Iterator[list[Row]]:
    """A list of objects, of named numbers, or of lists under a first list of names."""
    objects = [cast(Json, x) for x in items if isinstance(x, dict)]
    if len(objects) * 2 > len(items):
        named = [documents.named(x) for x in objects]
        if sum(map(bool, named)) * 2 > len(objects):
            yield documents.merged([row for row in named if row])
        else:
            yield [row for row in map(flatten, objects) if row]
        yield series([(called(x), x) for x in objects])
    head = cast(list[Any], items[0]) if isinstance(items[0], list) else []
    if head and all(isinstance(x, str) for x in head):
        yield under(cast(list[str], head), items[1:])


def of_object(data: Json) -> Iterator[list[Row]]:
    """Columns of one length, a head beside a body, numbers by index, points by name."""
    lists = {k: cast(list[Any], v) for k, v in data.items() if isinstance(v, list) and cast(list[Any], v)}
    if len({len(v) for v in lists.values()}) == 1 and len(lists) > 1 and len(next(iter(lists.values()))) > 1:
        yield rows_of({k: dict(enumerate(v)) for k, v in lists.items()})
    lower = {k.lower(): v for k, v in data.items()}
    for h in HEADS:
        names = name_list(lower.get(h))
        for body in (lower.get(b) for b in BODIES) if names else ():
            if isinstance(body, list):
                yield under(names, cast(list[Any], body))
    inner = {k: cast(Json, v) for k, v in data.items() if isinstance(v, dict) and len(cast(Json, v)) > 1}
    if inner and all(all(str(i).isdigit() for i in v) for v in inner.values()):
        yield rows_of({k: {int(i): x for i, x in v.items()} for k, v in inner.items()})
    elif len(inner) > 1 and all(any(c.isdigit() for c in k) for k in inner):
        yield [{"step": at, **flatten(v)} for k, v in inner.items() if (at := digits(k)) is not None]
    yield series(list(inner.items()))
    for shared in lists.values():  # {"labels": [1, 2], "datasets": [{"label": "reward", "data": [.1, .2]}, ...]}
        for named in lists.values():
            if named is not shared and all(isinstance(x, dict) for x in named):
                yield series([(called(x), {"steps": shared, **x}) for x in cast(list[Json], named)])


def called(item: Json) -> str:
    """The name that an object has, or its label."""
    return documents.name_in(item) or next((x for k in LABELS if isinstance(x := item.get(k), str)), "")


LABELS = ("label", "title", "legend", "id")


def digits(key: str) -> float | None:
    """The one whole number in a key: "step_12" -> 12."""
    found = "".join(c if c.isdigit() else " " for c in key).split()
    return float(found[0]) if len(found) == 1 else None


def name_list(value: Any) -> list[str]:
    """Names of columns: strings, or objects that have a name."""
    items = cast(list[Any], value) if isinstance(value, list) else []
    names = [
        x if isinstance(x, str) else documents.name_in(cast(Json, x)) if isinstance(x, dict) else "" for x in items
    ]
    return names if len(names) > 1 and all(names) else []


def under(names: list[str], body: list[Any]) -> list[Row]:
    """Rows of lists as long as their head."""
    rows = (cast(list[Any], x) for x in body if isinstance(x, list) and len(cast(list[Any], x)) == len(names))
    numbers = ({n: v for n, x in zip(names, row) if (v := number(x)) is not None} for row in rows)
    return [row for row in numbers if row]


def rows_of(columns: dict[str, dict[int, Any]]) -> list[Row]:
    """Rows of columns whose numbers are known by their place."""
    rows: dict[int, Row] = {}
    for name, column in columns.items():
        for i, x in column.items():
            if (v := number(x)) is not None:
                rows.setdefault(i, {})[name] = v
    return [rows[i] for i in sorted(rows)]


def series(named: list[tuple[str, Json]]) -> list[Row]:
    """One row a step of metrics that have lists of steps and of values of their own, or a list of points."""
    cells: list[tuple[Any, str, Any]] = []
    for name, item in named:
        lower = {k.lower(): v for k, v in item.items()}
        values = next((cast(list[Any], v) for p in POINTS if isinstance(v := lower.get(p), list)), list[Any]())
        steps = next((cast(list[Any], v) for s in STEPS if isinstance(v := lower.get(s), list)), list[Any]())
        if not name or not names_outcome(name):
            continue
        if len(values) == len(steps):
            cells += [(s, name, v) for s, v in zip(steps, values)]
        elif all(isinstance(v, list) and len(cast(list[Any], v)) in (2, 3) for v in values):
            cells += [(v[-2], name, v[-1]) for v in values]
        elif all(isinstance(v, dict) for v in values):
            points = [{k.lower(): x for k, x in cast(Json, v).items()} for v in values]
            cells += [(first_of(v, STEPS), name, first_of(v, ("value", "y", "v"))) for v in points]
    return documents.by_step(cells)


def first_of(point: Json, names: Iterable[str]) -> Any:
    return next((point[n] for n in names if n in point), None)


def printed(lines: Sequence[str]) -> list[Row]:
    """Rows of objects that a text shows over several lines, indented: JSON or Python's own writing.

    The step may stand on the line before ("Step 12").
    """
    from anygrpo.doctor.readers.lines import STEP

    rows: list[Row] = []
    block: list[str] = []
    depth, before = 0, ""
    for line in lines:
        if not depth and line.rstrip()[-1:] not in ("{", "("):
            before = line
            continue
        start = line.find("{") if not depth else 0
        if start < 0:
            continue
        if not depth:
            said, block = line[:start], []
            before = said if STEP.search(said) else before
        block.append(line[start:])
        depth += line[start:].count("{") - line[start:].count("}")
        if depth <= 0 or len(block) > 400:
            row = parsed("\n".join(block)) if depth <= 0 else {}
            named = STEP.search(before)
            if row and named and "step" not in row:
                row = {"step": float(named[1])} | row
            rows += [row] if row else []
            depth, before = 0, ""
    return [row for row in rows if any(map(names_outcome, row))] or arrays(lines)


ARRAY = re.compile(
    r"^\s*[\"']?([A-Za-z_][\w./-]*)[\"']?\s*[=:]\s*(?:[\w.]+\()?\[([-+\d.,\seE]+(?:nan|inf)?[-+\d.,\seE]*)\]"
)


def arrays(lines: Iterable[str]) -> list[Row]:
    """Rows of lists of one length, as a script holds them: "rewards = [.1, .2, ...]"."""
    found = {m[1]: m[2].replace(",", " ").split() for line in lines if (m := ARRAY.match(line))}
    longest = max(map(len, found.values()), default=0)
    same = {k: dict(enumerate(v)) for k, v in found.items() if len(v) == longest}
    return rows_of(same) if len(same) > 1 and longest > 3 else []


def parsed(text: str) -> Row:
    """The numbers of one object; empty where it is none."""
    text = text[: text.rfind("}") + 1]
    for read in (json.loads, ast.literal_eval):
        try:
            return flatten(read(TENSOR.sub(r"\1", text)))
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
    return {}
