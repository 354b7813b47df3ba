"""A scorer that is a function of the user's own."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from anygrpo.core import user_code
from anygrpo.errors import ConfigError
from anygrpo.scoring.outcome import FirstCall, Raised
from anygrpo.selection.scorer_settings import PythonScorerConfig
from anygrpo.selection.scorers.scorer import Judgement, Shown, parts_of
from anygrpo.spoken import Text


class FromPython:
    """`judge(query, demonstrations)` of a file. Its judgements are those of the file's present text. A failure is the
    sample's reason; one on every sample of the first call is the file's (`FirstCall`)."""

    def __init__(self, config: PythonScorerConfig) -> None:
        self.config, self.function = config, partial(_function(config), **config.arguments)
        text = Path(config.function.rpartition(":")[0]).read_bytes()
        given = repr(sorted(config.arguments.items())) if config.arguments else ""
        self.first = FirstCall(
            Text(f"the scorer {config.function}", f"评分器 {config.function}"),
            Text("a number, or numbers by name", "一个数，或按名给出的数"),
        )
        self.identity = f"{config.function}|{config.version}{given}|{hashlib.sha256(text).hexdigest()}"

    def judge(self, shown: Sequence[Shown]) -> list[Judgement]:
        if self.config.concurrency == 1:
            found = [self._one(one) for one in shown]
        else:
            with ThreadPoolExecutor(self.config.concurrency) as threads:
                found = list(threads.map(self._one, shown))
        self.first.see(found)
        return found

    def _one(self, one: Shown) -> Judgement:
        reason: Judgement = ""
        for _ in range(self.config.retries + 1):
            try:
                return parts_of(self.function(dict(one.query), [dict(row) for row in one.demonstrations]))
            except Exception as error:  # whatever a user's function raises: the sample is invalid, with that reason
                trace = "".join(traceback.format_exception(error))
                reason = Raised(f"the judge failed: {user_code.describe(error)}", trace)
        return reason


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
