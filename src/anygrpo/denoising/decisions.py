"""Scoring stochastic steps again: their Gaussians, log-probs and KL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from anygrpo.core.tree import Tree, tree_map
from anygrpo.denoising.denoiser import Condition
from anygrpo.denoising.gaussian import dimensions, kl_same_std, reduce_mean
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

if TYPE_CHECKING:
    from anygrpo.denoising.policy import DiffusionPolicy


@dataclass(frozen=True)
class Decisions:
    """The Gaussians of t decisions of n rows, flattened to m = n t, as scoring reads them."""

    shape: tuple[int, int]
    step: Tensor
    x: Tensor
    action: Tensor
    mean: Tensor
    std: Tensor
    noise: Tensor | None
    valid: Tensor
    condition: Condition


def decisions(policy: DiffusionPolicy, samples: Tree, times: slice) -> Decisions:
    """The decisions `times` of rows.

    Raises:
        ConfigError: a step without noise among them.
    """
    step = samples["steps"][:, times]
    n, t = step.shape
    flat = lambda x: x.reshape(n * t, *x.shape[2:])  # noqa: E731
    first, step = times.indices(samples["steps"].shape[1])[0], flat(step)
    x = flat(samples["latents"][:, first : first + t])
    action = flat(samples["latents"][:, first + 1 : first + t + 1]).float().detach()
    condition = {k: v.repeat_interleave(t, 0) for k, v in samples["condition"].items()}
    mean, std = policy.transitions.gaussian(step, x, policy.predict(x, step, condition))
    if policy.faults.score_last_step:
        std = torch.where(std > 0, std, policy.transitions.neighbour_std(step))
    if not bool((std > 0).all()):
        raise ConfigError(
            Text(
                f"step {int(step[std <= 0][0])} of {len(policy.transitions)} has no noise: its action has no density",
                f"{len(policy.transitions)} 步中的第 {int(step[std <= 0][0])} 步没有噪声：它的动作没有概率密度",
            ),
            Text("score only the stochastic steps, as `sample` returns them", "请只给 `sample` 返回的随机步评分"),
        )
    if policy.faults.attach_actions:
        action = action + (mean - mean.detach())
    noise = flat(samples["noise"][:, times]) if policy.reduction.needs_noise else None
    return Decisions((n, t), step, x, action, mean, std, noise, policy.valid_dimensions(condition, mean), condition)


def log_prob(policy: DiffusionPolicy, d: Decisions) -> Tensor:
    """[n, t] by the event reduction; `step_weights` act on its gradient."""
    value = policy.reduction.log_prob(d.action, d.mean, d.std, d.valid, d.noise).view(d.shape)
    if policy.config.step_weights == "none":
        return value
    weight = policy.step_weights[d.step].view(d.shape)  # of its gradient alone: ratio and clip stay as they are
    return value.detach() + weight * (value - value.detach())


def kl_to_reference(policy: DiffusionPolicy, d: Decisions) -> Tensor:
    """Exact KL to the reference in `kl_unit`, [n, t], by a second forward of the same latents under it."""
    with torch.no_grad(), policy.reference():
        other, _ = policy.transitions.gaussian(d.step, d.x, policy.predict(d.x, d.step, d.condition))
    unit = policy.reduction.scale(dimensions(d.valid, d.mean), d.std.double())
    if policy.config.kl_unit == "flow_grpo":
        unit = unit * policy.transitions.lengths().to(unit)[d.step]
    return (kl_same_std(d.mean, other, d.std, d.valid) * unit).float().view(d.shape)


@torch.no_grad()
def log_prob_info(policy: DiffusionPolicy, samples: Tree) -> dict[str, float]:
    """ "log_prob/current" and "log_prob/reference" of the first sample's decisions [P, G, ...], per dimension (the mean
    reduction, whatever the policy's own is): two forward passes of as many rows as it has decisions."""
    if policy.faults.active:
        return {}  # what those runs measured is in their own log-probs
    rows = tree_map(lambda x: x[:1, 0], samples)
    whole = slice(0, rows["steps"].shape[1])

    def measured() -> float:
        d = decisions(policy, rows, whole)
        return float(reduce_mean(d.action, d.mean, d.std, d.valid, None).mean())

    with policy.mode():
        current = measured()
        with policy.reference():
            return {"log_prob/current": current, "log_prob/reference": measured()}
