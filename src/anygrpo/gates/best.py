"""What a rollout's draws say: the best of a group to learn from, and how its gates are spread."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from anygrpo.core.rollout import Rollout
from anygrpo.gates.losses import weighted

SITE = "site/"
"""Prefix of the leaves that hold a site's values."""
MEAN, SPREAD = "restoration/gate_mean/", "restoration/gate_spread/"


def best_of(rollout: Rollout, target: str, losses: Mapping[str, float]) -> Rollout:
    """Of each group [P, G] the sample [P, 1] whose output is nearest to the target by the supervised loss."""
    samples = dict(rollout.samples)
    p, g, _ = rollout.shape
    away = weighted(losses, samples["restored"].flatten(0, 1), samples[target].flatten(0, 1)).view(p, g)
    best = (torch.arange(p, device=away.device), away.argmin(1))
    taken = {name: x[best][:, None] for name, x in samples.items()}
    made = Rollout.of(taken, rollout.log_probs[best][:, None], rollout.mask[best][:, None])
    made.info.update(rollout.info)
    return made


def spread_of(samples: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Of each site the mean of its drawn values, and their standard deviation inside a group (0 where it has one draw),
    by metric name."""
    told: dict[str, Tensor] = {}
    for name, x in samples.items():
        if name.startswith(SITE) and x.is_floating_point():
            site, value = name.removeprefix(SITE), x.float()
            told[MEAN + site] = value.mean()
            told[SPREAD + site] = value.std(1, correction=0).mean()
    return told
