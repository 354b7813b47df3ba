"""Denoising diffusion and flow matching as policies: any diffusers UNet or transformer, or your own denoiser."""

from __future__ import annotations

from anygrpo.denoising.parts import Parts
from anygrpo.denoising.policy import DiffusionPolicy
from anygrpo.denoising.settings import DiffusionPolicyConfig
from anygrpo.denoising.transitions import transitions_of

__all__ = ["DiffusionPolicy", "Parts", "build"]


def build(config: DiffusionPolicyConfig, seed: int) -> DiffusionPolicy:
    """The policy of a `[policy] kind = "diffusion"` section.

    Raises:
        ConfigError: a scheduler or model whose Gaussian is not known, or settings that exclude each other.
        DataError: the pipeline folder or factory cannot be loaded.
    """
    from anygrpo.denoising.pipelines import parts_of

    parts = parts_of(config, seed)
    levels = None if parts.levels is None else parts.levels(config.steps)
    transitions = transitions_of(parts.scheduler, config.steps, config.sampler, config.eta, config.noise_level, levels)
    return DiffusionPolicy(parts, transitions, config, seed)
