"""Worker process: the plain loop of `ddpo_peer` with Flow-GRPO's step (arXiv 2505.05470, equation 9).

The last step has no noise and is not trained (its code leaves it out by a timestep fraction of .99). No KL on either
side.
"""

from __future__ import annotations

from typing import Any

from peers.diffusion import ddpo_peer
from torch import Tensor

NOISE_LEVEL = 0.7


def transition(scheduler: Any, out: Tensor, timestep: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and std of the next latent of a flow; out [n, *E] is the velocity, timestep [n] 1000 times the level."""
    shape = (-1, *[1] * (x.dim() - 1))
    levels, times = scheduler.sigmas.to(x.device), scheduler.timesteps.to(x.device)
    index = (times[None] == timestep[:, None]).int().argmax(1)
    level, below = levels[index].view(shape), levels[index + 1].view(shape)
    dt = below - level
    finite = level.where(level < 1, levels[1])
    rate = (level / (1 - finite)).sqrt() * NOISE_LEVEL
    if bool((below == 0).all()):
        return x + out * dt, rate * 0
    mean = x * (1 + rate**2 / (2 * level) * dt) + out * (1 + rate**2 * (1 - level) / (2 * level)) * dt
    return mean, rate * (-dt).sqrt()


if __name__ == "__main__":
    ddpo_peer.main(transition)
