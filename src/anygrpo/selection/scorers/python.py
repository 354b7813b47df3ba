"""A scorer that is a function of the user's own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from anygrpo.core import user_code
from anygrpo.selection.scorer_settings import PythonScorerConfig
from anygrpo.selection.scorers.scorer import Judgement, Shown, parts_of


class FromPython:
    """`judge(query, demonstrations)` of a file. Its judgements are those of the file's present text."""

    def __init__(self, config: PythonScorerConfig) -> None:
        self.config, self.function = config, partial(user_code.load(config.function), **config.arguments)
        text = Path(config.function.rpartition(":")[0]).read_bytes()
        given = repr(sorted(config.arguments.items())) if config.arguments else ""
        self.identity = f"{config.function}|{config.version}{given}|{hashlib.sha256(text).hexdigest()}"

    def judge(self, shown: Sequence[Shown]) -> list[Judgement]:
        if self.config.concurrency == 1:
            return [self._one(one) for one in shown]
        with ThreadPoolExecutor(self.config.concurrency) as threads:
            return list(threads.map(self._one, shown))

    def _one(self, one: Shown) -> Judgement:
        reason = ""
        for _ in range(self.config.retries + 1):
            try:
                return parts_of(self.function(dict(one.query), [dict(row) for row in one.demonstrations]))
            except Exception as error:  # whatever a user's function raises: the sample is invalid, with that reason
                reason = f"the judge failed: {user_code.describe(error)}"
        return reason
