"""What a reward is to the scorer: a name, a weight, and outcomes of rows that arrive later."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from anygrpo.scoring.attacks import Tried
from anygrpo.scoring.outcome import Outcome as Outcome
from anygrpo.scoring.outcome import Raised as Raised
from anygrpo.scoring.outcome import Unfit, outcome_of
from anygrpo.scoring.workers import Pool, WorkerFailure


def reason_of(failure: WorkerFailure) -> str:
    """The failure as an outcome."""
    if failure.shape:
        return Unfit(failure.reason)
    return Raised(failure.reason, failure.trace) if failure.trace else failure.reason


@dataclass(frozen=True)
class Rows:
    """N outputs with their prompts, row by row (a prompt stands once for each of its outputs).

    Attributes:
        prompts: N texts or message lists.
        outputs: N texts.
        columns: the data's other columns, N values each (None where a prompt lacks one).
    """

    prompts: list[Any]
    outputs: list[str]
    columns: dict[str, list[Any]]

    def __len__(self) -> int:
        return len(self.outputs)

    def column(self, name: str) -> list[Any]:
        """N values; None for each where no prompt here has the column."""
        return self.columns.get(name, [None] * len(self))

    def take(self, index: list[int]) -> Rows:
        pick = lambda values: [values[i] for i in index]  # noqa: E731
        return Rows(pick(self.prompts), pick(self.outputs), {k: pick(v) for k, v in self.columns.items()})


class Reward(Protocol):
    """Attributes: name of its component; weight in the sum; whether it judges correctness (for eval/accuracy).

    One that knows its least and greatest value has them as `bounds`.
    """

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> float: ...

    @property
    def judges(self) -> bool: ...

    def start(self, rows: Rows) -> Callable[[], list[Outcome]]:
        """Begin scoring; the returned function waits for the N outcomes. Neither raises for a bad sample."""
        ...


@runtime_checkable
class Attackable(Protocol):
    """A reward that runs what a model wrote."""

    def attacked(self, rows: Rows) -> list[Tried]:
        """What each attack of `anygrpo.scoring.attacks` earns with these rows' columns."""
        ...


@dataclass(frozen=True)
class Inline:
    """A cheap function that cannot hang, called in the trainer itself."""

    name: str
    weight: float
    judges: bool
    function: Callable[..., list[float | None]]
    settings: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    "Argument of the function -> column of the data."
    bounds: tuple[float, float] | None = None

    def start(self, rows: Rows) -> Callable[[], list[Outcome]]:
        from anygrpo.scoring._worker import verdicts

        given = {argument: rows.column(column) for argument, column in self.columns.items()}
        result = verdicts(self.function(rows.prompts, rows.outputs, **given, **self.settings), len(rows))
        return lambda: [outcome_of(verdict) for verdict in result]


@dataclass(frozen=True)
class Remote:
    """A function called in worker processes: a user's, or a built-in that may hang.

    Attributes:
        target: "path.py:function" or "module:function".
        columns: argument of the function -> column of the data.
        split: cut the rows into as many calls as there are workers.
        form: how the target is called, where it is a user's (see `signatures`); "" for a function of ours.
        splits: it counts words by `split()`, to which a Chinese sentence is one word.
        retry_alone: after a failed call, try its rows one by one, so that a bad row costs only itself.
    """

    name: str
    weight: float
    judges: bool
    target: str
    pool: Pool
    timeout: float
    settings: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    split: bool = False
    retry_alone: bool = True
    form: str = ""
    splits: bool = False
    owns_pool: bool = False
    bounds: tuple[float, float] | None = None

    PATIENCE = 6
    """Time spent on retries, in time-outs, before the rows left are given up."""

    def start(self, rows: Rows) -> Callable[[], list[Outcome]]:
        if self.splits:
            warn_of_chinese(self.name, rows)
        size = -(-len(rows) // self.pool.size) if self.split else len(rows)
        chunks = [list(range(i, min(i + size, len(rows)))) for i in range(0, len(rows), max(1, size))]
        futures = [self._submit(rows.take(index)) for index in chunks]

        def wait() -> list[Outcome]:
            out: list[Outcome] = ["not scored"] * len(rows)
            for index, future in zip(chunks, futures):
                for i, outcome in zip(index, self._collect(future, rows, index)):
                    out[i] = outcome
            return out

        return wait

    def close(self) -> None:
        """Stop workers that are this reward's alone."""
        if self.owns_pool:
            self.pool.close()

    def _submit(self, rows: Rows) -> Future[list[Outcome]]:
        columns = {argument: rows.column(column) for argument, column in self.columns.items()}
        outputs = ["".join(output) if type(output) is not str else output for output in rows.outputs]
        if not self.form:
            arguments = {"prompts": rows.prompts, "outputs": outputs, **columns, **self.settings}
            return self.pool.submit(self.target, arguments, len(rows), self.timeout)
        ids = [getattr(output, "ids", None) for output in rows.outputs]
        given = {"prompts": rows.prompts, "outputs": outputs, "ids": ids, "columns": columns, "settings": self.settings}
        given["messages"] = [getattr(output, "messages", None) for output in rows.outputs]
        return self.pool.submit(self.target, given, len(rows), self.timeout, self.form)

    def _collect(self, future: Future[list[Outcome]], rows: Rows, index: list[int]) -> list[Outcome]:
        try:
            return future.result()
        except WorkerFailure as failure:
            if not (failure.retry and self.retry_alone and len(index) > 1):
                return [reason_of(failure)] * len(index)
        return self._one_by_one(rows, index)

    def _one_by_one(self, rows: Rows, index: list[int]) -> list[Outcome]:
        deadline = time.monotonic() + self.PATIENCE * self.timeout
        out: list[Outcome] = []
        for i in index:
            if time.monotonic() > deadline:
                out.append(f"given up: retries took over {self.PATIENCE * self.timeout:g} s")
                continue
            try:
                out += self._submit(rows.take([i])).result()
            except WorkerFailure as failure:
                out.append(reason_of(failure))
        return out


_CHINESE = re.compile(r"[\u3400-\u9fff]")
_warned: set[str] = set()


def warn_of_chinese(name: str, rows: Rows) -> None:
    """Say once that `split()` takes a Chinese sentence for one word, where there is Chinese to count."""
    if name in _warned or not any(_CHINESE.search(str(text)) for text in [*rows.outputs, *rows.prompts]):
        return
    _warned.add(name)
    warnings.warn(
        f"the reward {name!r} counts words by split(), to which a Chinese sentence is one word; count characters, or "
        'use kind = "length" (split() 把一整句中文算作一个词；请按字计数)',
        stacklevel=2,
    )
