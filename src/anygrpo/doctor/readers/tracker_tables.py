"""What trackers write when a run is exported: one file a metric, one row a number, one column a run."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from anygrpo.doctor.canonical import concept, names_outcome
from anygrpo.doctor.log import Log, Row, number
from anygrpo.doctor.readers import long
from anygrpo.doctor.readers.source import encoding_of, lines

TAG = re.compile(r"^wall[ _]?time,\s*step,\s*value\s*$", re.I)
"""The head of TensorBoard's "download as CSV": one tag a file, the tag in the file's name."""
OF_RUN = re.compile(r"^run-(?P<run>.*?)-?tag-")
MLFLOW = re.compile(r"^-?\d+ [-+.\deEnaif]+ \d+$", re.I)
"""A line of MLflow's file store: milliseconds, value, step."""
WANDB, SWANLAB = r"^(?P<run>.+?) - (?P<metric>.+)$", r"^(?P<metric>[^-]+)-(?P<run>.+)$"
"""A run and a metric in a column's name."""
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
        if all(isinstance(x, list) and len(cast(list[Any], x)) == 3 and number(x[1]) is not None for x in items):
            return labelled(label, ((str(x[1]), str(x[2])) for x in items))
    return None


def labelled(label: str, pairs: Iterable[tuple[str, str]]) -> list[Row]:
    """Rows of (step, value) pairs; what is no number (a head) is left out."""
    found = ((number(step.strip()), number(value.strip())) for step, value in pairs)
    return [{"step": step, label: value} for step, value in found if step is not None and value is not None]


def folder_of_tags(path: Path, source: str) -> list[Log]:
    """The runs of a folder with one file a metric, each joined by step; empty where it is none.

    The run is in the file's name (TensorBoard), else in its folder (MLflow: RUN/metrics/NAME); files are parted by it
    only where a metric comes twice, since writers of one run may bear names of their own.
    """
    base = path / "metrics" if (path / "metrics").is_dir() else path
    files: list[tuple[str, str, list[Row]]] = []
    for file in sorted(p for p in base.rglob("*") if p.is_file())[:MOST]:
        where = file.relative_to(base).as_posix()
        name = file.name if file.suffix in (".csv", ".json") else where.rpartition("metrics/")[2]
        if rows := one_tag(file, name):
            of_run = OF_RUN.match(file.stem)
            run = (of_run["run"] if of_run else "") or where.removesuffix(name).rstrip("/").removesuffix("/metrics")
            files.append((run, next(key for key in rows[0] if key != "step"), rows))
    twice = len({tag for _, tag, _ in files}) < len(files)
    runs: dict[str, dict[float, Row]] = {}
    for run, _, rows in files:
        steps = runs.setdefault(run if twice else "", {})
        for row in rows:
            steps.setdefault(row["step"], {}).update(row)
    return [
        Log(
            f"{source}: {run}" if len(runs) > 1 else source,
            "exported-tags",
            [steps[s] for s in sorted(steps)],
            notes=[f"{sum(own == run or not twice for own, _, _ in files)} metrics, one file each"],
        )
        for run, steps in runs.items()
    ]


def runs_of(names: list[str]) -> dict[str, dict[str, str]]:
    """run -> {column: metric} where a table has one column a run: "a - train/reward", "b - train/reward"; "reward-a".

    Empty for a table of one run whose columns have no run in their names.
    """
    for pattern in (WANDB, SWANLAB):
        found = [(n, m) for n in names if (m := re.match(pattern, n)) and not n.endswith(("__MIN", "__MAX"))]
        runs: dict[str, dict[str, str]] = {}
        for name, match in found:
            if names_outcome(match["metric"]) and not match["run"].endswith("_timestamp"):
                runs.setdefault(match["run"], {})[name] = match["metric"]
        whole = sum(names_outcome(n) and not re.match(pattern, n) for n in names)
        if runs and not whole and (pattern == WANDB or all_named_alike(runs)):
            return runs
    return {}


def all_named_alike(runs: dict[str, dict[str, str]]) -> bool:
    """Whether "reward-a", "reward-b" are a metric of runs, not "reward-mean", "kl-ref" with dashes of their own."""
    if any(names_outcome(run) for run in runs) or not all_share_one(runs):
        return False
    whole = [found[0] for own in runs.values() for name in own if (found := concept(name))]
    return all(name.startswith("reward/component") for name in whole)


def all_share_one(runs: dict[str, dict[str, str]]) -> bool:
    """Whether any metric is in each of the runs."""
    first, *others = (frozenset(own.values()) for own in runs.values())
    return bool(first.intersection(*others))


def tables_of_runs(path: Path, source: str) -> list[Log]:
    """The runs of a table of several: a column a run and a metric, or a column with the run's name; else empty."""
    with path.open("rb") as handle:
        head = handle.read(1 << 16)
    encoding = encoding_of(head)
    text = head.decode(encoding, "ignore").lstrip("\ufeff")
    first = text.split("\n", 1)[0]
    if text[:1] == "{":
        return long.objects_of_runs(lines(path, encoding), first, source)
    mark = max(",\t;", key=first.count)
    if mark not in first or text[:1] == "[":
        return []
    try:
        table = csv.reader((line.replace("\0", "") for line in lines(path, encoding)), delimiter=mark)
        names = [cell.strip().lstrip("\ufeff") for cell in next(table, list[str]())]
        if (found := long.long_table(names, table)) is not None:
            return found.logs(source) if len(found.runs) > 1 else []
        lower = [n.lower() for n in names]
        step, run = long.place(lower, long.STEPS), long.place(lower, long.RUNS)
        if step is not None and (runs := runs_of(names)) and len(runs) > 1:
            return columns_of_runs(names, step, runs, table, source)
        if step is None or run is None or not any(map(names_outcome, names)):
            return []
        cells = (c for c in table if len(c) == len(names))
        return long.apart(
            ((c[run], {n: x for n, v in zip(names, c) if (x := number(v)) is not None}) for c in cells),
            names[step],
            "csv",
            source,
        )
    except csv.Error:
        return []


def columns_of_runs(
    names: list[str], step: int, runs: dict[str, dict[str, str]], table: Iterable[list[str]], source: str
) -> list[Log]:
    """One log a run of a table that has a column a run and a metric."""
    logs = {run: Log(f"{source}: {run}", "csv") for run in runs}
    for cells in table:
        numbers = dict(zip(names, map(number, cells)))
        for run, columns in runs.items():
            row = {metric: x for name, metric in columns.items() if (x := numbers.get(name)) is not None}
            if row and (at := number(cells[step])) is not None:
                logs[run].rows.append({"step": at, **row})
    return [log for log in logs.values() if log.rows]
