"""Importance correction in the loop: samples scored once by the training pass before the first update of a step."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from anygrpo.algorithm.correction import Correction, importance_correction, mismatch
from anygrpo.core.choices import chosen
from anygrpo.core.policy import Policy
from anygrpo.core.tree import tree_map
from anygrpo.recipe.recipe import Stage
from anygrpo.train.batches import Prepared
from anygrpo.train.log_probs import log_probs_of
from anygrpo.train.parallel import gather
from anygrpo.train.sharded import whole_weights


def corrected(policy: Policy, own: Prepared, stage: Stage, rows: int) -> tuple[Prepared, dict[str, float]]:
    """This rank's rows with the old policy's log-probs and the factors old / behaviour; and what is to be logged about
    all ranks' (see `algorithm.correction.mismatch`)."""
    a = stage.algorithm
    mask, behaviour = own.mask.flatten(0, 1), own.rollout.log_probs.flatten(0, 1)
    with whole_weights(policy):
        old = _old(policy, own, mask, behaviour, rows)
    rule = chosen("correction", a.importance).function
    made = importance_correction(old, behaviour, mask, cap=a.importance_cap, mode=rule, level=a.importance_level)
    grid = lambda x: x.view(own.rollout.log_probs.shape)  # noqa: E731
    return replace(own, old=grid(old), importance=grid(made.weights)), _metrics(made, mask)


def _old(policy: Policy, own: Prepared, mask: Tensor, behaviour: Tensor, rows: int) -> Tensor:
    """[n, T] log-probs under the present weights, of the rows that can count."""
    live = mask.any(-1).nonzero()[:, 0]
    device = policy.parameters()[0].device
    samples = tree_map(lambda x: x.flatten(0, 1)[live.to(x.device)].to(device), own.rollout.samples)
    old = behaviour.clone()
    old[live] = log_probs_of(policy, samples, behaviour[live].to(device), rows).to(old)
    return old


def _metrics(made: Correction, mask: Tensor) -> dict[str, float]:
    parts = gather([x[mask].cpu() for x in (made.log_ratio, made.used, made.above)])
    logs, used, above = (torch.cat(tensors) for tensors in zip(*parts))
    return {name: float(value) for name, value in mismatch(logs, used, above).items()}
