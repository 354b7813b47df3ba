"""A policy of the user's own, from its Python file, with the weights that it starts from."""

from __future__ import annotations

from anygrpo.core import python_kind
from anygrpo.core.hub import located
from anygrpo.core.policy import Policy
from anygrpo.core.settings import OwnPolicyConfig
from anygrpo.core.trained import state_of
from anygrpo.models import weights


def build(config: OwnPolicyConfig, seed: int) -> Policy:
    """What `function(seed=seed, **arguments)` returns, with the weights of `model` in its `trainable()`, which are its
    reference then.

    Raises:
        DataError: no such file, or weights that do not fit; the report of names and shapes is in the message.
        ConfigError: the function cannot be called so, raises, or returns no policy.
    """
    policy = python_kind.build_policy(config, seed)
    if config.model is not None:
        module, folder = policy.trainable(), located(config.model).is_dir()
        trained = state_of(module)  # all that a checkpoint or an export holds
        weights.load(module, config.model, kept=module.state_dict().keys() - trained.keys() if folder else ())
        policy.fix_reference()
    return policy
