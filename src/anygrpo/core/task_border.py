"""The border to a user's own task: what it returns is tried once, before the first step, as a policy's (`border`)."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any

from anygrpo.core.contract import a_kind, called, wrong
from anygrpo.core.task import Success, Task, is_number
from anygrpo.core.user_code import described
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


def _is_count(x: Any) -> bool:
    try:
        return index(x) >= 0
    except (TypeError, ValueError, RuntimeError):  # a float tensor and an array of several have `__index__` too
        return False


_MEASURES = Text('a dict of name ("eval/...") -> number', '名称（"eval/..."）到数的字典')
_ATTRIBUTES: tuple[tuple[str, Callable[[Any], bool], Text], ...] = (
    (
        "size",
        _is_count,
        Text("a whole number, 0 where it is endless", "整数，无穷时为 0"),
    ),
    (
        "lowest_reward",
        lambda x: is_number(x) and math.isfinite(x),
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
    given = expect_prompts(task, called(task, "prompts", 0, count), count)
    prompts = _by_number(task, given, count)
    expect_held_out(task, called(task, "held_out"))
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


def _by_number(task: Task, given: Sequence[Any], count: int) -> list[Any]:
    try:
        return [given[i] for i in range(count)]
    except (LookupError, TypeError) as error:  # a table of columns
        wrong(
            task,
            "prompts",
            a_kind(given)
            + Text(f" without items by number ({described(error)})", f"，不能按序号取（{described(error)}）"),
            Text(f"a list of {count} prompts", f"{count} 个提示的列表"),
        )
        raise


def expect_prompts(task: Task, prompts: Any, count: int, fewer: bool = False) -> Sequence[Any]:
    """The task's prompts of a step, maybe made as they are asked for.

    Args:
        fewer: there may be less than `count`, as at the end of the data, but one.

    Raises:
        ConfigError: they are no sequence, or not that many.
    """
    ordered = is_sequence(prompts)
    if ordered and (len(prompts) == count or (fewer and 0 < len(prompts) < count)):
        return prompts
    found = a_kind(prompts)
    if ordered:
        found += Text(f" of {len(prompts)}", f"，{len(prompts)} 个元素")
    wanted = Text(f"a list of {count} prompts", f"{count} 个提示的列表")
    if fewer:
        wanted += Text(" (fewer at the end of the data, but one)", "（数据末尾可以更少，但至少一个）")
    wrong(task, "prompts", found, wanted)
    return []


def is_sequence(x: Any) -> bool:
    """Whether it has a length and items by their number: a list, a tuple, a class of the user's own with both."""
    if isinstance(x, str | bytes | Mapping) or not hasattr(type(x), "__getitem__"):
        return False
    try:
        len(x)
    except TypeError:  # none, or a tensor of no axis
        return False
    return True


def held_out(task: Task) -> Sequence[Any]:
    """The task's held-out prompts, maybe made as they are asked for. Raises: ConfigError where they are no list."""
    return expect_held_out(task, task.held_out())


def expect_held_out(task: Task, prompts: Any) -> Sequence[Any]:
    """`prompts`, held out by the task. Raises: ConfigError where they are no list."""
    if not isinstance(prompts, Sequence) or isinstance(prompts, str | bytes):
        words = Text("a list (an empty one: nothing is evaluated)", "列表（空：不评估）")
        wrong(task, "held_out", a_kind(prompts), words)
    return prompts


def measures(task: Task, prompts: list[Any], outputs: list[list[Any]]) -> dict[str, float]:
    """The task's own measures. Raises: ConfigError where they are no dict of name -> number."""
    made: Any = task.measure(prompts, outputs)
    if not isinstance(made, dict):
        wrong(task, "measure", a_kind(made), _MEASURES)
    for name, value in made.items():
        if not (isinstance(name, str) and is_number(value)):
            wrong(task, "measure", Text(f"{name!r} as ", f"{name!r} 为") + a_kind(value), _MEASURES)
    return {name: value if isinstance(value, int | float) else float(value) for name, value in made.items()}
