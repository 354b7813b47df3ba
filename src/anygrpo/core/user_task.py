"""A user's own task class."""

from __future__ import annotations

from anygrpo.core import user_code as python_file
from anygrpo.core.settings import PythonTask
from anygrpo.core.task import Task
from anygrpo.errors import ConfigError


def build(config: PythonTask, seed: int) -> Task:
    """`Class(seed=seed, **arguments)` of path.py:Class.

    Raises:
        ConfigError: the class cannot be built, or lacks a method of the Task protocol; the method is named.
        DataError: no such file.
    """
    factory = python_file.load(config.task)
    try:
        task = factory(seed=seed, **config.arguments)
    except TypeError as error:
        raise ConfigError(
            f"{config.task} cannot be called with seed and {sorted(config.arguments)}: {error}",
            "it is built as Class(seed=seed, **arguments)",
        ) from error
    wanted = ("size", "prompts", "held_out", "score", "stored", "measure", "prepare", "pictures", "close")
    if lacking := [name for name in wanted if not hasattr(task, name)]:
        raise ConfigError(
            f"{config.task} lacks {', '.join(lacking)} of the Task protocol",
            "derive the class from anygrpo.core.task.BaseTask and define prompts, held_out and score",
        )
    return task
