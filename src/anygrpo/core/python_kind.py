"""Policies and tasks of the user's own, from a Python file."""

from __future__ import annotations

from typing import Any

from anygrpo.core import contract, user_code
from anygrpo.core.policy import Policy
from anygrpo.core.settings import OwnPolicyConfig, OwnTaskConfig
from anygrpo.core.task import Task
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


def build_policy(config: OwnPolicyConfig, seed: int) -> Policy:
    """What `function(seed=seed, **arguments)` of path.py:function returns.

    Raises:
        DataError: no such file.
        ConfigError: it cannot be called so, raises, or returns no policy; the missing methods are named.
    """
    return _built(config.function, config.arguments, seed, Policy)


def build_task(config: OwnTaskConfig, seed: int) -> Task:
    """What `function(seed=seed, **arguments)` of path.py:Class makes.

    Raises:
        DataError: no such file.
        ConfigError: it cannot be called so, raises, or is no task; the missing methods are named.
    """
    return _built(config.function, config.arguments, seed, Task)


def _built(spec: str, arguments: dict[str, Any], seed: int, base: type) -> Any:
    factory = user_code.load(spec)
    if isinstance(factory, type) and (lacking := sorted(getattr(factory, "__abstractmethods__", ()))):
        raise ConfigError(
            Text(f"{spec} does not define {', '.join(lacking)}", f"{spec} 没有定义 {'、'.join(lacking)}"),
            Text(f"anygrpo.{base.__name__} says what they do", f"它们的含义见 anygrpo.{base.__name__}"),
        )
    made = user_code.made(spec, arguments, seed=seed)
    contract.instance(made, base, spec)
    return made
