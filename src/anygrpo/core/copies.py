"""A policy's copy that samples while the original is trained."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from anygrpo.errors import ConfigError

if TYPE_CHECKING:
    from anygrpo.core.policy import Policy


@torch.no_grad()
def own_copy(policy: Policy, prompts: list[Any]) -> Policy:
    """A deep copy of a policy, tried: it samples the same, by weights that are not the policy's.

    Raises:
        ConfigError: it cannot be copied, or what is copied is not all that samples (a hook holds on to the original).
    """
    what, cure = (
        f"{type(policy).__name__} cannot be copied to sample beside its updates",
        "set training.max_staleness = 0",
    )
    try:
        made = copy.deepcopy(policy)
    except Exception as error:  # whatever a user's class makes of it
        raise ConfigError(f"{what}: {type(error).__name__}: {error}", cure) from error
    drawn = lambda one: one.sample(prompts[:1], 2, seed=1).log_probs  # noqa: E731
    with torch.random.fork_rng(devices=[]):
        before = drawn(policy)
        if not torch.equal(before, drawn(made)):
            raise ConfigError(f"{what}: the copy samples otherwise from the same seed", cure)
        for p in made.parameters():
            p.add_(0.1 * torch.randn_like(p))
        if not torch.equal(before, drawn(policy)) or torch.equal(before, drawn(made)):
            raise ConfigError(f"{what}: the copy samples with the original's weights", cure)
    made.follow(policy)
    return made
