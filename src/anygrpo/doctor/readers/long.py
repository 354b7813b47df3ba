"""Tables with one number a line (step, metric, value), and rows of several runs under each other, named by a column."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from anygrpo.doctor.log import Log, Row, flatten, number
from anygrpo.doctor.readers import documents
from anygrpo.doctor.readers.source import Rows
from anygrpo.errors import DataError
from anygrpo.spoken import Text

STEPS = ("step", "global_step", "_step", "iteration", "iter", "epoch")
METRICS = ("metric", "metric_name", "metricname", "tag", "key", "variable", "series", "name")
VALUES = ("value", "val", "metric_value", "metricvalue")
SPLITS = ("split", "phase", "mode", "subset")
RUNS = ("run", "run_id", "run_name", "run_uuid", "seed", "experiment", "trial", "name")
TIMES = ("time", "date", "created")
MOST, ONCE = 64, 0.9
"""Runs of one file; the share of a run's rows that have a step of their own (a resume repeats some)."""
WIDEST = 6
"""Columns of the widest table that is taken for one."""


@dataclass
class Long:
    """Runs of such a table: label -> rows in order of their steps, and how many numbers came twice in one run."""

    runs: dict[str, list[Row]] = field(default_factory=dict[str, list[Row]])
    twice: int = 0

    def logs(self, source: str) -> list[Log]:
        """One log a run."""
        notes = [f"{self.twice} numbers came twice for a step: the last counts"] if self.twice else []
        named = len(self.runs) > 1
        return [
            Log(f"{source}: {run}" if named else source, "csv", rows, notes=notes) for run, rows in self.runs.items()
        ]

    def only(self, source: str) -> Log:
        """The log of a table of one run.

        Raises:
            DataError: it holds several.
        """
        if len(self.runs) > 1:
            raise several(source, list(self.runs))
        return next(iter(self.logs(source)), Log(source, "csv"))


def several(source: str, runs: Sequence[str]) -> DataError:
    """What is said where one log is wanted and several runs are there."""
    names = ", ".join(runs[:4]) + (", ..." if len(runs) > 4 else "")
    return DataError(
        Text(f"{source}: {len(runs)} runs ({names})", f"{source}：有 {len(runs)} 次运行（{names}）"),
        Text("give one run, in a file or folder of its own", "请只给一次运行，放在单独的文件或文件夹中"),
    )


def place(names: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Where the first of `wanted` that is there stands among lower-case names."""
    return next((names.index(name) for name in wanted if name in names), None)


def long_table(names: Sequence[str], body: Iterable[list[str]]) -> Long | None:
    """The runs of a table with one number a line; None, with nothing of `body` taken, where the header is another.

    Runs are parted by the columns that name them (`RUNS`, or any other words), and only where the same metric of the
    same step comes in more than one of them. A split goes before the metric: "eval/reward".
    """
    lower = [n.strip().lower() for n in names]
    step, metric, value = (place(lower, wanted) for wanted in (STEPS, METRICS, VALUES))
    if len(names) > WIDEST or step is None or metric is None or value is None:
        return None
    split = place(lower, SPLITS)
    rest = [
        i
        for i, name in enumerate(lower)
        if i not in (step, metric, value, split) and name not in STEPS and not any(word in name for word in TIMES)
    ]
    out, runs = Long(), dict[str, dict[float, Row]]()
    for cells in body:
        if len(cells) != len(names):
            continue
        at, x = number(cells[step]), number(cells[value])
        if at is None or x is None:
            continue
        named = (cells[i].strip() for i in rest if lower[i] in RUNS or number(cells[i]) is None)
        row = runs.setdefault(" ".join(filter(None, named)), {}).setdefault(at, {"step": at})
        name = cells[metric].strip() if split is None else f"{cells[split].strip()}/{cells[metric].strip()}"
        out.twice += name in row
        row[name] = x
    several_runs = overlap(list(runs.values()))
    for run, steps in runs.items():
        out.runs.setdefault(run if several_runs else "", []).extend(steps.values())
    out.runs = {run: joined(rows) for run, rows in out.runs.items()}
    return out


def overlap(runs: list[dict[float, Row]]) -> bool:
    """Whether two of them have the same metric at the same step."""
    seen: dict[float, set[str]] = {}
    for steps in runs:
        for at, row in steps.items():
            known, own = seen.setdefault(at, set()), row.keys() - {"step"}
            if known & own:
                return True
            known |= own
    return False


def joined(rows: list[Row]) -> list[Row]:
    """Rows of the same step as one, in order."""
    by_step: dict[float, Row] = {}
    for row in rows:
        by_step.setdefault(row["step"], {}).update(row)
    return [by_step[at] for at in sorted(by_step)]


def objects_of_runs(text: Iterable[str], first: str, source: str) -> list[Log]:
    """The runs of one object a line, where a key of each names its run; empty for any other, seen at the first line."""
    example = parsed(first)
    run, step = place(list(example), RUNS[:-1]), place(list(example), STEPS)
    if run is None or step is None:
        return []
    name, at = list(example)[run], list(example)[step]
    items = (item for line in text if (item := parsed(line)))
    return apart(((str(i.get(name, "")), documents.named(i) or flatten(i)) for i in items), at, "jsonl", source)


def parsed(line: str) -> dict[str, Any]:
    """The object on a line; empty where there is none."""
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def apart(rows: Iterable[tuple[str, Row]], step: str, kind: str, source: str) -> list[Log]:
    """One log a run of (run, row); empty unless the runs share steps that are each run's own (nearly) once.

    A seed that changes from step to step, or a table of samples, is none.
    """
    runs: dict[str, Rows] = {}
    for run, row in rows:
        if "step" not in row and step in row:
            row = {"step": row[step]} | row
        if "step" in row:
            runs.setdefault(run.strip(), Rows()).append(row)
        if len(runs) > MOST:
            return []
    logs = [Log(f"{source}: {run}", kind, documents.merged(found), notes=found.note) for run, found in runs.items()]
    steps = [[row["step"] for row in log.rows] for log in logs]
    shared = len({x for own in steps for x in own}) < sum(len(set(own)) for own in steps)
    once = all(len(set(own)) >= ONCE * len(own) and len(own) > 1 for own in steps)
    return logs if len(logs) > 1 and shared and once else []
