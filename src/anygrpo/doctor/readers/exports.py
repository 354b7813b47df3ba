"""What trackers write when a run is exported: one file a metric, one row a number, one column a run."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from anygrpo.doctor.canonical import names_outcome
from anygrpo.doctor.log import Log, Row, number
from anygrpo.doctor.readers.source import encoding_of, lines

TAG = re.compile(r"^wall[ _]?time,\s*step,\s*value\s*$", re.I)
"""The head of TensorBoard's "download as CSV": one tag a file, the tag in the file's name."""
OF_RUN = re.compile(r"^run-.*?-?tag-")
MLFLOW = re.compile(r"^-?\d+ [-+.\deEnaif]+ \d+$", re.I)
"""A line of MLflow's file store: milliseconds, value, step."""
NAMES = {"metric", "name", "tag", "key", "variable", "series", "metricname", "metric_name"}
VALUES = {"value", "val", "metric_value", "metricvalue"}
STEPS = {"step", "global_step", "_step", "iteration", "iter", "epoch"}
MOST = 400
"""Files of one folder that are tried as metrics."""


def tag_of(path: Path) -> str:
    """The tag in a file's name: "run-x-tag-train_reward.csv" -> "train_reward"."""
    return OF_RUN.sub("", path.stem)


def one_tag(path: Path, name: str) -> list[Row] | None:
    """Rows {step, tag} of TensorBoard's CSV or JSON of one tag, or of one file of MLflow; None where it is neither."""
    with path.open("rb") as handle:
        head = handle.read(4096)
    text = head.decode(encoding_of(head), "ignore").lstrip("\ufeff")
    first = text.split("\n", 1)[0].strip()
    label = tag_of(Path(name))
    if TAG.match(first):
        cells = (line.split(",") for line in lines(path, encoding_of(head)))
        return labelled(label, ((c[1], c[2]) for c in cells if len(c) == 3))
    if MLFLOW.match(first):
        cells = (line.split() for line in lines(path, encoding_of(head)))
        return labelled(name, ((c[2], c[1]) for c in cells if len(c) == 3))
    if first.startswith("[[") and path.stat().st_size < 64 << 20:
        try:
            items = cast(list[Any], json.loads(path.read_text("utf-8", "replace")))
        except (ValueError, RecursionError):
            return None
        if all(isinstance(x, list) and len(cast(list[Any], x)) == 3 for x in items):
            return labelled(label, ((str(x[1]), str(x[2])) for x in items))
    return None


def labelled(label: str, pairs: Iterable[tuple[str, str]]) -> list[Row]:
    """Rows of (step, value) pairs; what is no number (a head) is left out."""
    found = ((number(step.strip()), number(value.strip())) for step, value in pairs)
    return [{"step": step, label: value} for step, value in found if step is not None and value is not None]


def folder_of_tags(path: Path, source: str) -> Log | None:
    """A folder with one file a metric, joined by step; None where it is none. MLflow's names are paths in metrics/."""
    by_step: dict[float, Row] = {}
    tags = 0
    base = path / "metrics" if (path / "metrics").is_dir() else path
    for file in sorted(p for p in base.rglob("*") if p.is_file())[:MOST]:
        name = file.name if file.suffix in (".csv", ".json") else str(file.relative_to(base))
        rows = one_tag(file, name)
        tags += bool(rows)
        for row in rows or ():
            by_step.setdefault(row["step"], {}).update(row)
    if not tags:
        return None
    return Log(source, "exported-tags", [by_step[s] for s in sorted(by_step)], notes=[f"{tags} metrics, one file each"])


def long_table(names: list[str], body: Iterable[list[str]]) -> list[Row] | None:
    """Rows of a table with one number a line (step, metric, value); None where the header is another."""
    lower = [n.strip().lower() for n in names]
    places = [next((i for i, n in enumerate(lower) if n in kind), None) for kind in (STEPS, NAMES, VALUES)]
    if len(names) > 6 or None in places:
        return None
    step, name, value = cast(list[int], places)
    by_step: dict[float, Row] = {}
    for cells in body:
        if len(cells) == len(names):
            at, x = number(cells[step]), number(cells[value])
            if at is not None and x is not None:
                by_step.setdefault(at, {"step": at})[cells[name].strip()] = x
    return [by_step[s] for s in sorted(by_step)]


def runs_of(names: list[str]) -> dict[str, dict[str, str]]:
    """run -> {column: metric} where a table has one column a run: "a - train/reward", "b - train/reward"; "reward-a".

    Empty for a table of one run whose columns have no run in their names.
    """
    for pattern in (r"^(?P<run>.+?) - (?P<metric>.+)$", r"^(?P<metric>[^-]+)-(?P<run>.+)$"):
        found = [(n, m) for n in names if (m := re.match(pattern, n)) and not n.endswith(("__MIN", "__MAX"))]
        runs: dict[str, dict[str, str]] = {}
        for name, match in found:
            if names_outcome(match["metric"]) and not match["run"].endswith("_timestamp"):
                runs.setdefault(match["run"], {})[name] = match["metric"]
        whole = sum(names_outcome(n) and not re.match(pattern, n) for n in names)
        if runs and not whole and (" - " in pattern or not any(names_outcome(run) for run in runs)):
            return runs
    return {}


def tables_of_runs(path: Path, source: str) -> list[Log]:
    """The runs of a table that has one column a run and a metric; empty where it has not two of them."""
    with path.open("rb") as handle:
        head = handle.read(1 << 16)
    encoding = encoding_of(head)
    text = head.decode(encoding, "ignore").lstrip("\ufeff")
    first = text.split("\n", 1)[0]
    if "," not in first or text[:1] in "{[":
        return []
    try:
        table = csv.reader(lines(path, encoding))
        names = [cell.strip().lstrip("\ufeff") for cell in next(table, list[str]())]
        runs = runs_of(names)
        if len(runs) < 2 or not any(n.lower() in STEPS for n in names):
            return []
        logs = {run: Log(f"{source}: {run}", "csv") for run in runs}
        step = next(i for i, n in enumerate(names) if n.lower() in STEPS)
        for cells in table:
            numbers = dict(zip(names, map(number, cells)))
            for run, columns in runs.items():
                row = {metric: x for name, metric in columns.items() if (x := numbers.get(name)) is not None}
                if row and (at := number(cells[step])) is not None:
                    logs[run].rows.append({"step": at, **row})
    except csv.Error:
        return []
    return [log for log in logs.values() if log.rows]
