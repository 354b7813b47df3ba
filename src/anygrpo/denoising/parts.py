"""What a denoising policy is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from anygrpo.denoising.denoiser import Condition


@dataclass(frozen=True)
class Parts:
    """What a denoising policy is made of; your own factory returns this.

    Attributes:
        denoiser: `denoiser(x [n, *E], timestep [n], **condition) -> [n, *E]`.
        scheduler: a diffusers DDPM, DDIM or flow-matching Euler scheduler.
        shape: E, the latent's shape.
        encode: prompts -> condition with leaves [P, ...], without gradient.
        decode: (latents [m, *E], condition [m, ...]) -> m outputs, as a reward reads them (images, motions).
        to_latent: one output -> latent E (the inverse of `decode`), for stored actions; None where there is none.
        null: the unconditional condition, leaves [1, ...].
        valid: condition -> bool broadcastable to [n, *E]: dimensions that count. None: all of them.
        levels: steps -> what `scheduler.set_timesteps` is given; None: their number alone.
        embedded_guidance: the denoiser itself applies `policy.guidance`; no second pass is made.
        beside: modules by their names in a pipeline (text encoders) that are not as its folder has them: training
            started from a LoRA that adapts them too. They are frozen, and leave with an export.
    """

    denoiser: nn.Module
    scheduler: Any
    shape: tuple[int, ...]
    encode: Callable[[list[Any]], Condition]
    decode: Callable[[Tensor, Condition], list[Any]]
    to_latent: Callable[[Any], Tensor] | None = None
    null: Condition | None = None
    valid: Callable[[Condition], Tensor] | None = None
    levels: Callable[[int], dict[str, Any]] | None = None
    embedded_guidance: bool = False
    beside: Mapping[str, nn.Module] = field(default_factory=dict)
