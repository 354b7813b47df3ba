"""From a recipe's tables to the policy and the task they name. A module is imported when its kind is asked for."""

from __future__ import annotations

from typing import Any

from anygrpo.errors import ConfigError
from anygrpo.families import kind_of, resolve
from anygrpo.spoken import Text

OWN = ("python", "object")
"""Kinds whose code is the user's own: what it returns is tried at the border (`core.border`, `core.task_border`)."""


def build_policy(config: Any, seed: int) -> Any:
    """The policy of a recipe's [policy] section."""
    return resolve(kind_of("policy", config.kind).build)(config, seed)


def build_task(config: Any, seed: int) -> Any:
    """The task of a recipe's [task] section."""
    return resolve(kind_of("task", config.kind).build)(config, seed)


def absent(config: Any, seed: int) -> Any:
    """Raises: ConfigError, since an object that was in memory is not here any more."""
    raise ConfigError(
        Text(
            f"{config.name} was an object in memory, which a recipe cannot make again",
            f"{config.name} 是内存中的对象，配方无法再次构造它",
        ),
        Text(
            "hand it over again: anygrpo.train(policy, task, resume=folder)",
            "请再次传入：anygrpo.train(policy, task, resume=folder)",
        ),
    )
