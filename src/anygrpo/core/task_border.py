"""The border to a user's own task: what it returns is tried once, before the first step, as a policy's (`border`)."""

from __future__ import annotations

import inspect
from typing import Any

from anygrpo.core.border import a_kind, called, wrong
from anygrpo.core.task import Success, Task
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


def check_task(task: Task, count: int) -> list[Any]:
    """The prompts of the first step.

    Raises:
        ConfigError: `prompts` or `held_out` is missing, raises, or returns no list of that many.
    """
    prompts = called(task, "prompts", 0, count)
    if not isinstance(prompts, list) or len(prompts) != count:
        found = a_kind(prompts)
        if isinstance(prompts, list):
            found += Text(f" of {len(prompts)}", f"，{len(prompts)} 个元素")
        wrong(task, "prompts", found, Text(f"a list of {count} prompts", f"{count} 个提示的列表"))
    held_out = called(task, "held_out")
    if not isinstance(held_out, list):
        wrong(
            task,
            "held_out",
            a_kind(held_out),
            Text("a list (an empty one: nothing is evaluated)", "列表（空：不评估）"),
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
