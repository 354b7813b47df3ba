"""Denoising once, and keeping what scoring needs. Only the sampler's own Gaussians are used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from anygrpo.policies.diffusion.gaussian import Reduction, expand
from anygrpo.policies.diffusion.transitions import Transitions
from anygrpo.rollout import Tree


@dataclass
class Record:
    """The kept decisions of n rows, in order: each list gets one [n, ...] tensor a decision."""

    before: list[Tensor] = field(default_factory=list)
    noise: list[Tensor] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    log_probs: list[Tensor] = field(default_factory=list)
    after: Tensor | None = None

    def keep(self, step: int, x: Tensor, noise: Tensor, action: Tensor, log_prob: Tensor) -> None:
        self.before.append(x)
        self.noise.append(noise)
        self.steps.append(step)
        self.after = action
        self.log_probs.append(log_prob)

    def tree(self, timesteps: Tensor, with_noise: bool) -> Tree:
        """latents [n, S+1, *E], steps [n, S], timesteps [n, S], and noise [n, S, *E] if asked for."""
        assert self.after is not None
        steps = torch.tensor(self.steps, device=self.after.device).repeat(self.after.shape[0], 1)
        tree = {"latents": torch.stack([*self.before, self.after], 1), "steps": steps}
        tree["timesteps"] = timesteps.to(steps.device)[steps]
        return tree | ({"noise": torch.stack(self.noise, 1)} if with_noise else {})


@torch.no_grad()
def denoise(
    transitions: Transitions,
    predict: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    draw: Callable[[], Tensor],
    steps: range,
    kept: range,
    ode_elsewhere: bool,
    reduction: Reduction,
    valid: Tensor,
    keep_last: bool = False,
) -> tuple[Tensor, Record]:
    """From the latent before `steps` to the one after them, [n, *E]; over all steps: from noise to the final latent.

    Args:
        predict: (x [n, *E], step [n]) -> the guided prediction.
        x: [n, *E] the latent before the first of `steps`.
        draw: standard normal [n, *E], called once for each kept step.
        kept: the stochastic steps; contiguous. Empty: the whole way is noise-free.
        ode_elsewhere: the other steps follow the ODE; else the sampler's own (noise-free) transition there.
        reduction, valid: the event reduction and the valid dimensions, to record log-probs as sampled.
        keep_last: also record the noise-free last step (a fault, see `Faults.score_last_step`).
    """
    record = Record()
    for k in steps:
        step = torch.full((x.shape[0],), k, device=x.device)
        noisy = k in kept
        mean, std = transitions.gaussian(step, x, predict(x, step), ode=ode_elsewhere and not noisy)
        z = draw() if noisy else torch.zeros_like(mean)
        action = mean + expand(std, mean) * z
        if noisy or (keep_last and k == len(transitions) - 1):
            std = std if noisy else transitions.neighbour_std(step)
            record.keep(k, x, z, action, reduction.log_prob(action, mean, std, valid, z))
        x = action
    return x, record
