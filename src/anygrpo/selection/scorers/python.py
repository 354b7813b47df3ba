"""A scorer that is a function of the user's own."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from anygrpo.core import user_code
from anygrpo.errors import ConfigError
from anygrpo.scoring.outcome import FirstCall, Raised, Unfit
from anygrpo.selection.scorer_settings import PythonScorerConfig
from anygrpo.selection.scorers.scorer import Judgement, Shown, parts_of
from anygrpo.spoken import Text


class FromPython:
    """`judge(query, demonstrations)` of a file, async too, or over lists of both (`batch`). Its judgements are those of
    the file's present text. A failure is the sample's reason; one on every sample of the first call is the file's
    (`FirstCall`)."""

    def __init__(self, config: PythonScorerConfig) -> None:
        self.config, self.function = config, partial(_function(config), **config.arguments)
        text = Path(config.function.rpartition(":")[0]).read_bytes()
        given = repr(sorted(config.arguments.items())) if config.arguments else ""
        self.first = FirstCall(
            Text(f"the scorer {config.function}", f"评分器 {config.function}"),
            Text("a number, or numbers by name", "一个数，或按名给出的数"),
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.Lock()
        self.identity = f"{config.function}|{config.version}{given}|{hashlib.sha256(text).hexdigest()}"

    def judge(self, shown: Sequence[Shown]) -> list[Judgement]:
        size = self.config.batch
        calls = [shown[a : a + size] for a in range(0, len(shown), size)]
        if self.config.concurrency == 1:
            made = [self._called(call) for call in calls]
        else:
            with ThreadPoolExecutor(self.config.concurrency) as threads:
                made = list(threads.map(self._called, calls))
        found = [one for call in made for one in call]
        self.first.see(found)
        return found

    def _called(self, call: Sequence[Shown]) -> list[Judgement]:
        """The judgements of one call; where it raises, the reason of each."""
        reason: Judgement = ""
        for _ in range(self.config.retries + 1):
            try:
                return self._judgements(call)
            except Exception as error:  # whatever a user's function raises: the sample is invalid, with that reason
                trace = "".join(traceback.format_exception(error))
                reason = Raised(f"the judge failed: {user_code.describe(error)}", trace)
        return [reason] * len(call)

    def _judgements(self, call: Sequence[Shown]) -> list[Judgement]:
        queries = [dict(one.query) for one in call]
        rows = [[dict(row) for row in one.demonstrations] for one in call]
        if self.config.batch == 1:
            return [parts_of(self._finished(self.function(queries[0], rows[0])))]
        made = self._finished(self.function(queries, rows))
        made = made.tolist() if hasattr(made, "tolist") else made
        if not isinstance(made, list | tuple) or len(made) != len(call):
            said = f"{len(made)} judgements" if isinstance(made, list | tuple) else repr(made)[:60]
            wanted = "with batch above 1 a list is wanted, one judgement for each query"
            return [Unfit(f"the judge returned {said} for {len(call)} queries, and {wanted}")] * len(call)
        return [parts_of(one) for one in made]

    def _finished(self, value: Any) -> Any:
        """What an async function comes to, on one loop of its own for all calls: sessions stay open between them."""
        if not inspect.isawaitable(value):
            return value
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, daemon=True).start()
        return asyncio.run_coroutine_threadsafe(_awaited(value), self._loop).result()


async def _awaited(value: Any) -> Any:
    return await value


def _function(config: PythonScorerConfig) -> Callable[..., Any]:
    """Raises: ConfigError where it cannot be called as `judge(query, demonstrations)`."""
    found = user_code.load(config.function)
    try:
        if not callable(found):
            raise TypeError(type(found).__name__)
        with contextlib.suppress(ValueError):  # a built-in without a signature
            inspect.signature(found).bind({}, [], **config.arguments)
    except TypeError as error:
        spec = config.function
        raise ConfigError(
            Text(f"the scorer {spec} cannot be called: {error}", f"评分器 {spec} 不能调用：{error}"),
            Text("define judge(query, demonstrations)", "请定义 judge(query, demonstrations)"),
        ) from None
    return found
