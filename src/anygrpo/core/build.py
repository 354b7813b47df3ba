"""From a recipe's tables to the policy and the task they name. A module is imported when its kind is asked for."""

from __future__ import annotations

from typing import Any

from anygrpo.families import kind_of, resolve


def build_policy(config: Any, seed: int) -> Any:
    """The policy of a recipe's [policy] section."""
    return resolve(kind_of("policy", config.kind).build)(config, seed)


def build_task(config: Any, seed: int) -> Any:
    """The task of a recipe's [task] section."""
    return resolve(kind_of("task", config.kind).build)(config, seed)
