"""Denoising once, and keeping what scoring needs. Only the sampler's own Gaussians are used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from anygrpo.core.tree import Tree
from anygrpo.denoising.gaussian import Reduction, expand
from anygrpo.denoising.transitions import Transitions


@dataclass
class Record:
    """The kept decisions of n rows, in order, written where scoring reads them: a list to be stacked in the end would
    hold the trajectory twice.

    Attributes:
        size: decisions to come. with_noise: keep the noise too.
        latents: [n, size + 1, *E]; noise: [n, size, *E] or None; both from the first decision on.
        log_probs: one tensor [n] a decision.
    """

    size: int
    with_noise: bool
    latents: Tensor | None = None
    noise: Tensor | None = None
    steps: list[int] = field(default_factory=list)
    log_probs: list[Tensor] = field(default_factory=list)

    def keep(self, step: int, x: Tensor, noise: Tensor, action: Tensor, log_prob: Tensor) -> None:
        if self.latents is None:
            n, event = x.shape[0], x.shape[1:]
            self.latents = x.new_empty(n, self.size + 1, *event)
            self.noise = x.new_empty(n, self.size, *event) if self.with_noise else None
        at = len(self.steps)
        self.latents[:, at], self.latents[:, at + 1] = x, action
        if self.noise is not None:
            self.noise[:, at] = noise
        self.steps.append(step)
        self.log_probs.append(log_prob)

    def tree(self, timesteps: Tensor) -> Tree:
        """latents [n, S+1, *E], steps [n, S], timesteps [n, S], and noise [n, S, *E] where it was kept."""
        assert self.latents is not None
        steps = torch.tensor(self.steps, device=self.latents.device).repeat(len(self.latents), 1)
        tree = {"latents": self.latents, "steps": steps, "timesteps": timesteps.to(steps.device)[steps]}
        return tree | ({} if self.noise is None else {"noise": self.noise})


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
        keep_last: also record the noise-free last step (a fault, see `FaultsConfig.score_last_step`).
    """
    record = Record(len(kept) + keep_last, reduction.needs_noise)
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
