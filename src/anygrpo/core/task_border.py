"""The border to a user's own task: what it returns is tried once, before the first step, as a policy's (`border`)."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from anygrpo.core.contract import a_kind, called, wrong
from anygrpo.core.task import Success, Task
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

_MEASURES = Text('a dict of name ("eval/...") -> number', '名称（"eval/..."）到数的字典')
_ATTRIBUTES: tuple[tuple[str, Callable[[Any], bool], Text], ...] = (
    (
        "size",
        lambda x: isinstance(x, int) and x >= 0,
        Text("a whole number, 0 where it is endless", "整数，无穷时为 0"),
    ),
    (
        "lowest_reward",
        lambda x: isinstance(x, int | float) and math.isfinite(x),
        Text("a finite number", "有限的数"),
    ),
    ("score_async", lambda x: x is None or callable(x), Text("a method, or None", "方法，或 None")),
)
"""Name, whether a value fits, what it has to be."""


def check_task(task: Task, count: int) -> list[Any]:
    """The prompts of the first step.

    Raises:
        ConfigError: `prompts` or `held_out` is missing, raises, or returns no list of that many.
    """
    prompts = expect_prompts(task, called(task, "prompts", 0, count), count)
    held_out(task)
    for name, right, what in _ATTRIBUTES:
        if not right(value := getattr(task, name)):
            place = f"{type(task).__name__}.{name}"
            raise ConfigError(
                Text(f"{place} is {value!r}", f"{place} 是 {value!r}"), Text("it has to be ", "应当是 ") + what
            )
    if not (task.success is None or isinstance(task.success, Success)):
        what = f"{type(task).__name__}.success"
        raise ConfigError(
            Text(f"{what} is {task.success!r}", f"{what} 是 {task.success!r}"),
            Text(
                "it has to be an anygrpo Success(component, at_least), or None",
                "应为 Success(component, at_least)，或 None",
            ),
        )
    if not callable(getattr(task, "score", None)):
        raise ConfigError(
            Text(f"{type(task).__name__}.score is {task.score!r}", f"{type(task).__name__}.score 是 {task.score!r}"),
            Text("define it", "请定义它"),
        )
    try:
        inspect.signature(task.score).bind(prompts, [])
    except TypeError as error:
        what = f"{type(task).__name__}.score"
        raise ConfigError(
            Text(f"{what} cannot be called: {error}", f"{what} 不能调用：{error}"),
            Text("define score(self, prompts, outputs)", "请定义 score(self, prompts, outputs)"),
        ) from None
    except ValueError:  # a built-in without a signature
        pass
    return prompts


def expect_prompts(task: Task, prompts: Any, count: int) -> list[Any]:
    """The task's prompts of a step. Raises: ConfigError where they are no list of `count`."""
    if isinstance(prompts, list) and len(prompts) == count:
        return prompts
    found = a_kind(prompts)
    if isinstance(prompts, list):
        found += Text(f" of {len(prompts)}", f"，{len(prompts)} 个元素")
    wrong(task, "prompts", found, Text(f"a list of {count} prompts", f"{count} 个提示的列表"))
    return []


def held_out(task: Task) -> Sequence[Any]:
    """The task's held-out prompts, maybe made as they are asked for. Raises: ConfigError where they are no list."""
    prompts: Any = task.held_out()
    if not isinstance(prompts, Sequence) or isinstance(prompts, str | bytes | tuple):
        words = Text("a list (an empty one: nothing is evaluated)", "列表（空：不评估）")
        wrong(task, "held_out", a_kind(prompts), words)
    return prompts


def measures(task: Task, prompts: list[Any], outputs: list[list[Any]]) -> dict[str, float]:
    """The task's own measures. Raises: ConfigError where they are no dict of name -> number."""
    made: Any = task.measure(prompts, outputs)
    if not isinstance(made, dict):
        wrong(task, "measure", a_kind(made), _MEASURES)
    for name, value in made.items():
        if not (isinstance(name, str) and isinstance(value, int | float)):
            wrong(task, "measure", Text(f"{name!r} as ", f"{name!r} 为") + a_kind(value), _MEASURES)
    return made
