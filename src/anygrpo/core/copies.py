"""A policy's copy that samples while the original is trained."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from anygrpo.core.digest import digest
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

if TYPE_CHECKING:
    from anygrpo.core.policy import Policy


@torch.no_grad()
def own_copy(policy: Policy, prompts: list[Any]) -> Policy:
    """A deep copy of a policy, tried: it samples the same, by weights that are not the policy's.

    Raises:
        ConfigError: it cannot be copied, it does not repeat itself, or what is copied is not all that samples (a hook
            holds on to the original).
    """
    name = type(policy).__name__
    what = Text(f"{name} cannot be copied to sample beside its updates", f"{name} 不能复制出一份在更新的同时采样")
    cure = Text("set training.max_staleness = 0", "请设 training.max_staleness = 0")
    try:
        made = copy.deepcopy(policy)
    except Exception as error:  # whatever a user's class makes of it
        raise ConfigError(what + Text(*[f": {type(error).__name__}: {error}"] * 2), cure) from error
    with torch.random.fork_rng(devices=[]):
        before = _drawn(policy, prompts)
        if before != _drawn(policy, prompts):
            raise ConfigError(
                what + Text(": it does not repeat itself from a seed", "：相同种子下不能重复自己"), _REPEATS
            )
        if before != _drawn(made, prompts):
            raise ConfigError(
                what + Text(": the copy samples otherwise from the same seed", "：相同种子下，副本采样出不同的结果"),
                cure,
            )
        for p in made.parameters():
            p.add_(0.1 * torch.randn_like(p))
        if before != _drawn(policy, prompts) or before == _drawn(made, prompts):
            raise ConfigError(
                what + Text(": the copy samples with the original's weights", "：副本用原策略的权重采样"), cure
            )
    made.follow(policy)
    return made


_REPEATS = Text(
    "draw all that sample() draws at random by its seed alone, or set training.max_staleness = 0",
    "请使 sample() 的随机性只来自种子，或设 training.max_staleness = 0",
)


def _drawn(policy: Policy, prompts: list[Any]) -> str:
    """What it draws from a fixed seed. Of the samples too: where noise is drawn and shifted by the weights, log-probs
    are the noise's own, whatever the weights."""
    made = policy.sample(prompts[:1], 2, seed=1)
    return digest((made.samples, made.log_probs))
