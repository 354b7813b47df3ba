"""The faults of published code that change what a sample's old log-prob is (config: `FaultsConfig`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anygrpo.core.tree import Tree


def old_log_probs(policy: Any, tree: Tree, sampled: list[Tensor]) -> Tensor:
    """[n, T] log-probs that ratios are taken to: as sampled, unless a fault says otherwise.

    Args:
        sampled: one [n] tensor a decision, from the sampler's own Gaussians.
    """
    if policy.faults.ratio_to == "reference":
        return _of_reference(policy, tree)
    log_probs = torch.stack(sampled, 1)
    return log_probs.sum(1, keepdim=True) if policy.faults.whole_trajectory else log_probs


def _of_reference(policy: Any, tree: Tree) -> Tensor:
    """The fault `ratio_to = "reference"`: from the frozen policy, in eval mode."""
    given, policy.faults = policy.faults, policy.faults.model_copy(update={"dropout_in_replay": False})
    count = 1 if given.whole_trajectory else tree["steps"].shape[1]
    try:
        with torch.no_grad(), policy.reference():
            return torch.cat([policy.evaluate(tree, slice(t, t + 1)).log_probs for t in range(count)], 1)
    finally:
        policy.faults = given
