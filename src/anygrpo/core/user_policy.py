"""A policy of the user's own, from a Python file."""

from __future__ import annotations

from typing import Any

from anygrpo.core import user_code
from anygrpo.core.policy import BasePolicy, Policy
from anygrpo.core.settings import PythonPolicyConfig
from anygrpo.errors import ConfigError


def build(config: PythonPolicyConfig, seed: int) -> Any:
    """Call the user's factory.

    Raises:
        DataError: no such file or function.
        ConfigError: what it returns is not a policy; the missing methods are named.
    """
    policy = user_code.load(config.factory)(config.options, seed)
    methods = ("sample", "evaluate", "decode", "reference", "trainable")
    missing = [name for name in methods if not callable(getattr(policy, name, None))]
    if missing or not isinstance(policy, Policy):
        raise ConfigError(
            f"{config.factory} returned {type(policy).__name__}, which lacks {missing}", "see core/policy.py"
        )
    if not isinstance(policy, BasePolicy):
        raise ConfigError(f"{type(policy).__name__} must derive from anygrpo.BasePolicy, which holds the defaults")
    return policy
