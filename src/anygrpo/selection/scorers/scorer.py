"""What a scorer is: queries and demonstrations in, parts of a reward or a reason out; kept on disk, within a budget."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from anygrpo.errors import DataError
from anygrpo.scoring.outcome import Unfit
from anygrpo.selection.parts import NAMES, UNIT
from anygrpo.selection.rewards import PARTS
from anygrpo.spoken import Text

Row = dict[str, Any]
Parts = dict[str, float]
Judgement = Parts | str
"""Parts by name ("correct", "gt_prob", "score", ...), or why there are none."""

_KNOWN = {name: part for part, names in NAMES.items() for name in names if name != "reward"}
"""What files call a part -> the part."""
ANSWERS = ("answer", "answers", "label")
"""Fields of a row that hold the truth: of a query they are not shown."""


@dataclass(frozen=True)
class Shown:
    """A query with what is shown before it, in order."""

    query: Row
    demonstrations: tuple[Row, ...]


class Scorer(Protocol):
    """Anything that judges.

    Attributes:
        identity: changes whenever its judgements may.
    """

    identity: str

    def judge(self, shown: Sequence[Shown]) -> list[Judgement]:
        """One judgement for each, in order. A failure is a reason, never an exception."""
        ...


class Kept:
    """A scorer whose judgements are kept, and that stops at a budget.

    Attributes:
        asked, computed: judgements asked for, and those that neither the file held nor the same call asked twice.
    """

    def __init__(self, scorer: Scorer, path: Path, budget: int | None = None) -> None:
        self.scorer, self.budget = scorer, budget
        self.asked, self.computed, self.path = 0, 0, path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(path, timeout=60, check_same_thread=False)
            self._file.execute("CREATE TABLE IF NOT EXISTS judgements (key TEXT PRIMARY KEY, parts TEXT NOT NULL)")
        except (OSError, sqlite3.Error) as error:
            raise DataError(
                Text(f"cannot keep judgements in {path}: {error}", f"无法把评判存入 {path}：{error}"),
                Text("delete it, or name another", "请删除它，或换一个文件"),
            ) from None

    def judge(self, shown: Sequence[Shown]) -> list[Judgement]:
        """As the scorer's; equal questions are asked once. Reasons are not kept: the next run tries again."""
        keys = [self._key(one) for one in shown]
        known: dict[str, Judgement] = dict(self._read(sorted(set(keys))))
        missing = {key: one for key, one in zip(keys, shown) if key not in known}
        left = math.inf if self.budget is None else max(0, self.budget - self.computed)
        ask = list(missing)[: len(missing) if left == math.inf else int(left)]
        if known and (first := getattr(self.scorer, "first", None)) is not None:
            first.worked = True  # what is asked again failed before; the function is not at fault
        fresh = dict(zip(ask, self.scorer.judge([missing[key] for key in ask]))) if ask else {}
        self.asked, self.computed = self.asked + len(shown), self.computed + len(ask)
        self._write({key: parts for key, parts in fresh.items() if isinstance(parts, dict)})
        spent = f"the budget of {self.budget} scorer calls is spent"
        known |= dict.fromkeys(missing, spent) | fresh
        return [known[key] for key in keys]

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _key(self, one: Shown) -> str:
        content = json.dumps([self.scorer.identity, one.query, one.demonstrations], sort_keys=True, default=str)
        return hashlib.sha256(content.encode()).hexdigest()

    def _read(self, keys: list[str]) -> dict[str, Parts]:
        found: dict[str, Parts] = {}
        with self._lock:
            for a in range(0, len(keys), 500):
                part = keys[a : a + 500]
                query = f"SELECT key, parts FROM judgements WHERE key IN ({','.join('?' * len(part))})"
                try:
                    rows = self._file.execute(query, part).fetchall()
                except sqlite3.DatabaseError as error:
                    raise DataError(
                        Text(
                            f"cannot read judgements of {self.path}: {error}", f"无法读取 {self.path} 中的评判：{error}"
                        ),
                        Text("delete it, or name another", "请删除它，或换一个文件"),
                    ) from None
                found |= {key: held for key, text in rows if (held := _held(text)) is not None}
        return found

    def _write(self, fresh: dict[str, Parts]) -> None:
        with self._lock, self._file:
            rows = [(key, json.dumps(parts)) for key, parts in fresh.items()]
            self._file.executemany("INSERT OR REPLACE INTO judgements VALUES (?, ?)", rows)


def _held(text: Any) -> Parts | None:
    """What a row holds; None where those are no named numbers, and are asked for anew."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    good = isinstance(found, dict) and all(type(x) in (int, float, bool) for x in found.values())
    return found if good else None


def parts_of(value: Any) -> Judgement:
    """What a judge returned, as parts: a number is a `score` (and `correct` where it is True or False)."""
    if value is None:
        return "the judge returned None"
    if isinstance(value, bool):
        return {"correct": float(value), "score": float(value)}
    if isinstance(value, dict):
        parts = {
            _KNOWN.get(str(n), str(n)): number for n, part in value.items() if (number := _number(part)) is not None
        }
        if not parts or len(parts) < len(value):
            return Unfit(f"the judge returned {str(value)[:200]}, and numbers by name are wanted")
        if parts.keys().isdisjoint(PARTS):
            return Unfit(
                f"the judge returned {', '.join(parts)[:100]}, and of its parts one is wanted: {', '.join(PARTS)}"
            )
        if wrong := _beyond(parts):
            return wrong
    elif (number := _number(value)) is None:
        return Unfit(f"the judge returned {str(value)[:60]!r}, and a number is wanted")
    else:
        parts = {"score": number}
    return parts if all(map(math.isfinite, parts.values())) else f"the judge returned {str(value)[:200]}"


def _beyond(parts: Parts) -> Judgement:
    """Why a part cannot be what it is called; "" where all can."""
    for name, value in parts.items():
        if name == "correct" and math.isfinite(value) and value not in (0, 1):
            return Unfit(f"the judge returned correct = {value:g}, and 0 or 1 is wanted (in grades: accuracy_score)")
        if name in UNIT and math.isfinite(value) and not -1e-6 <= value <= 1 + 1e-6:
            return Unfit(f"the judge returned {name} = {value:g}, and a number from 0 to 1 is wanted")
    return ""


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
