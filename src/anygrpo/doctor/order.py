"""The order of a log's rows: steps that a resumed run wrote again, counters that start anew, the newest row first."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

from anygrpo.doctor import canonical
from anygrpo.doctor.log import Row


def without_replaced(rows: list[Row]) -> tuple[list[tuple[int, Row]], list[str]]:
    """(row number, row) without the rows that a resumed run wrote again, and what had to be decided.

    A counter that falls back into the range already logged is a resume: the older rows from there on were abandoned.
    A counter that falls back to its beginning started anew: everything is kept in the order of the log.
    Counters of different names (iterations, frames) are not compared with each other.
    """
    kept: list[tuple[int, Row]] = []
    notes: list[str] = []
    lasts: dict[str, float] = {}
    firsts: dict[str, float] = {}
    numbered = list(enumerate(rows, 1))
    if newest_first(rows):
        numbered.reverse()
        notes.append("the newest row stands first: read from the end")
    for i, row in numbered:
        key = canonical.step_key(row)
        if key is not None and math.isfinite(step := row[key]):
            first = firsts.setdefault(key, step)
            if step < lasts.get(key, step) and not only_evaluation(row):
                if step > first + 1:
                    before = len(kept)
                    kept = [(j, r) for j, r in kept if canonical.step_key(r) != key or r[key] < step]
                    notes.append(f"resumed at step {step:g} (row {i}): {before - len(kept)} older rows replaced")
                else:
                    notes.append(f"the step counter starts again at {step:g} (row {i})")
            if not only_evaluation(row):
                lasts[key] = step
        kept.append((i, row))
    return kept, notes[:5]


def steps_in(rows: list[tuple[int, Row]]) -> dict[int, float]:
    """Row number -> step, by the counter that most rows have: iterations and frames are not one scale."""
    keys = Counter(key for _, row in rows if (key := canonical.step_key(row)) is not None)
    main = max(keys, key=lambda key: keys[key], default="")
    return {i: row[main] for i, row in rows if canonical.step_key(row) == main and math.isfinite(row[main])}


def newest_first(rows: list[Row]) -> bool:
    """Whether the step counter falls from nearly every row to the next."""
    steps = [s for row in rows if (s := canonical.step_of(row)) is not None]
    return len(steps) >= 5 and sum(b < a for a, b in pairwise(steps)) >= 0.9 * (len(steps) - 1)


def only_evaluation(row: Row) -> bool:
    found = [c[0] for c in map(canonical.concept, row) if c]
    return bool(found) and all(name.startswith("eval/") for name in found)
