"""A policy of the user's own, from a Python file."""

from __future__ import annotations

from typing import Any

from anygrpo.config.sections import PythonPolicyConfig
from anygrpo.errors import ConfigError
from anygrpo.files import load_object
from anygrpo.policies.base import BasePolicy, Policy


def build(config: PythonPolicyConfig, seed: int) -> Any:
    """Call the user's factory.

    Raises:
        DataError: no such file or function.
        ConfigError: what it returns is not a policy; the missing methods are named.
    """
    policy = load_object(config.factory)(config.options, seed)
    methods = ("sample", "evaluate", "decode", "reference", "trainable")
    missing = [name for name in methods if not callable(getattr(policy, name, None))]
    if missing or not isinstance(policy, Policy):
        raise ConfigError(
            f"{config.factory} returned {type(policy).__name__}, which lacks {missing}", "see policies/base.py"
        )
    if not isinstance(policy, BasePolicy):
        raise ConfigError(f"{type(policy).__name__} must derive from anygrpo.BasePolicy, which holds the defaults")
    return policy
