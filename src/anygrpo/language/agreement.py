"""Do a sampler's log-probs go into the rollout as they are? Measured once, and kept for a resumed run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from anygrpo.core.rollout import Rollout

if TYPE_CHECKING:
    from anygrpo.language.policy import CausalLM

PARITY = 1e-3
"""Largest difference between the sampler's and the training pass's log-probs (nats) up to which the sampler's are
taken as they are."""


def checked(policy: CausalLM, rollout: Rollout) -> Rollout:
    """The rollout with log-probs that the training pass agrees with: measured at the first call, and again made by the
    training pass at every call where the sampler's differ by more than `PARITY` (unless the loop corrects for that
    difference)."""
    if policy.trust_sampler or (policy.trust_sampler is False and (policy.one_update or policy.corrects)):
        return rollout
    start = time.perf_counter()
    rows = {name: x.flatten(0, 1) for name, x in rollout.samples.items()}
    again = policy.rescore(rows).view_as(rollout.log_probs)
    policy.parity = (again - rollout.log_probs).abs()[rollout.mask].max().item() if rollout.mask.any() else 0.0
    if policy.trust_sampler is None:
        policy.trust_sampler = policy.parity < PARITY
    rollout.info["parity/abs_max"] = policy.parity
    rollout.info["time/rescore"] = time.perf_counter() - start
    if policy.trust_sampler or policy.corrects:
        return rollout
    log_probs = torch.where(rollout.mask, again, 0.0)
    return Rollout(**{**rollout.__dict__, "log_probs": log_probs})


def carried(policy: CausalLM) -> dict[str, Any]:
    """What was found, and of which sampler and training pass."""
    return {"trusts": policy.trust_sampler, "parity": policy.parity, "of": _pair(policy)}


def resumed(policy: CausalLM, state: dict[str, Any]) -> None:
    """Take over what was found, unless sampler or training pass are others now: then it is measured anew."""
    trusts, gap = state.get("trusts"), state.get("parity")
    if state.get("of") == _pair(policy) and isinstance(trusts, bool) and isinstance(gap, float):
        policy.trust_sampler, policy.parity = trusts, gap


def _pair(policy: CausalLM) -> list[str]:
    engine = policy.engine
    return [
        type(engine).__name__,
        str(getattr(engine, "dtype", "")),
        str(policy.weights.dtype),
        policy.scorer.device.type,
    ]
