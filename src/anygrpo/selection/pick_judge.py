"""What `select` and the benchmarks ask of any task that picks can be given to: one way to judge, whoever wrote it.

A task says how good selections are in one of two ways: `judge(prompts, selections) -> {part: [P, G]}` (NaN: unknown),
or `score(prompts, outputs) -> Scores` as every task of this library. One is made from the other; a task needs but one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from anygrpo.core.task import Scores
from anygrpo.core.user_code import describe
from anygrpo.errors import AnygrpoError, ConfigError, DataError
from anygrpo.spoken import Text

Selection = tuple[int, ...]


class Judging:
    """A task as evaluation sees it.

    Attributes:
        measure: "correct" where the task has it, else "reward"; found by the first judgement.
        unjudged: reasons why selections could not be judged, in the order they came up.
    """

    def __init__(self, task: Any) -> None:
        self.task = task
        self.measure: str | None = None
        self.unjudged: list[str] = []
        own = getattr(task, "judge", None)
        self._parts: Callable[..., dict[str, Tensor]] = own if callable(own) else self._from_score  # type: ignore[assignment]
        if not callable(own) and not hasattr(task, "score"):
            raise ConfigError(
                Text(
                    f"{type(task).__name__} has neither judge nor score",
                    f"{type(task).__name__} 既没有 judge 也没有 score",
                ),
                Text("define one of them", "请定义其中一个"),
            )

    @property
    def lengths(self) -> list[int] | None:
        """Numbers of picks that can be judged at all, of a task that only looks selections up; None: any."""
        looks_up = hasattr(self.task, "lengths") and getattr(self.task, "live", None) is None
        return self.task.lengths() if looks_up else None

    def held_out(self) -> list[dict[str, Any]]:
        """Raises: DataError: the task holds nothing out."""
        prompts = self.task.held_out()
        if not prompts:
            raise DataError(
                Text(
                    "the task holds no query out, so there is nothing to evaluate on",
                    "任务没有留出查询，因此没有可评测的内容",
                ),
                Text("set task.held_out_share above 0", "请把 task.held_out_share 设为大于 0"),
            )
        return prompts

    def parts(self, prompts: list[Any], selections: list[list[Selection]]) -> dict[str, Tensor]:
        """All that the task says, [P, G] by name.

        Raises:
            DataError: the task's code fails on a selection.
        """
        try:
            return self._parts(prompts, selections)
        except AnygrpoError:
            raise
        except Exception as error:
            if all(not s for row in selections for s in row):  # many tasks have no answer to no demonstrations
                self.unjudged.append(f"no demonstrations: {describe(error)}")
                shape = (len(prompts), max(map(len, selections)))
                return {self.measure or "reward": torch.full(shape, torch.nan)}
            where = prompts[0].get("id") if isinstance(prompts[0], dict) else prompts[0]
            raise DataError(
                Text(
                    f"{type(self.task).__name__} failed to judge selections (query {where!r} ...): {describe(error)}",
                    f"{type(self.task).__name__} 评判选择失败（查询 {where!r} ...）：{describe(error)}",
                ),
                Text("mend its score or judge", "请修正它的 score 或 judge"),
            ) from error

    def outcome(self, prompts: list[Any], selections: list[list[Selection]]) -> Tensor:
        """[P, G] of the measure; NaN where unknown."""
        parts = self.parts(prompts, selections)
        if self.measure is None and any(s for row in selections for s in row):
            self.measure = "correct" if "correct" in parts else "reward" if "reward" in parts else next(iter(parts))
        found = parts.get(self.measure or "correct")
        if found is None:
            found = next(iter(parts.values()))
        return found.double()

    def training(self, count: int) -> list[dict[str, Any]]:
        """Up to `count` different training queries, in a fixed order."""
        named = getattr(self.task, "prompt", None)
        size = getattr(self.task, "size", 0)
        count = min(count, size) if size else count
        if callable(named) and hasattr(self.task, "config") and not hasattr(self.task, "by_id"):
            return [cast("dict[str, Any]", named(f"train-{i}")) for i in range(count)]
        found: dict[str, dict[str, Any]] = {}
        for step in range(2 * (count // 64 + 1)):
            for prompt in self.task.prompts(step, min(64, count)):
                found.setdefault(str(prompt["id"]), prompt)
        return list(found.values())[:count]

    def _from_score(self, prompts: list[Any], selections: list[list[Selection]]) -> dict[str, Tensor]:
        scores: Scores = self.task.score(prompts, selections)
        rewards = torch.as_tensor(scores.rewards).double()
        known = torch.isfinite(rewards) if scores.valid is None else torch.isfinite(rewards) & scores.valid
        parts = {"reward": rewards} | {n: torch.as_tensor(x).double() for n, x in scores.components.items()}
        return {name: torch.where(known, x, torch.nan) for name, x in parts.items()}
