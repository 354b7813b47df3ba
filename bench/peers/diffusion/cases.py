"""The cases of `bench/compare.py diffusion`, and the denoisers, schedulers and conditions that both sides are given."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from anygrpo.denoising.denoiser import Condition, DiffusersDenoiser
from anygrpo.errors import ConfigError, suggestion


@dataclass(frozen=True)
class Case:
    """One piece of work: an optimizer step on P x G samples of T stochastic denoising steps each.

    Attributes:
        name: as on the command line.
        denoiser: unet, a small conditional U-Net of diffusers; motion, an MDM-style transformer; flow, a transformer of
            Stable Diffusion 3's kind.
        prompts, group: P and G. steps: denoising steps; all have noise (DDIM, eta = 1, as in DDPO) but a flow's last.
        rows: samples in a forward pass of training, on both sides.
        size: the latent's height and width (unet, flow) or frames (motion). features: numbers a frame (motion).
        width: channels of the first level (unet) or of a token. layers: blocks a level, or layers.
    """

    name: str
    denoiser: Literal["unet", "motion", "flow"]
    prompts: int = 4
    group: int = 8
    steps: int = 10
    rows: int = 8
    size: int = 16
    width: int = 32
    layers: int = 1
    features: int = 47

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def samples(self) -> int:
        """P x G."""
        return self.prompts * self.group

    @property
    def decisions(self) -> int:
        """Steps of a sample that have noise, and are trained."""
        return self.steps - (self.denoiser == "flow")

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one latent."""
        if self.denoiser == "motion":
            return (self.size, self.features)
        return (4 if self.denoiser == "unet" else 16, self.size, self.size)


TEXT_TOKENS, TEXT_WIDTH, POOLED = 8, 64, 32
CASES = {
    case.name: case
    for case in (
        Case("unet", "unet"),
        Case("motion", "motion", size=64, width=256, layers=4),
        Case("full-motion", "motion", 8, 4, steps=50, rows=32, size=196, width=512, layers=8, features=263),
        Case("flow", "flow", 2, 8, steps=5, rows=8, size=64, width=1024, layers=12),
        Case("tiny-unet", "unet", 2, 4, steps=3, rows=4, size=8, width=16),
        Case("tiny-flow", "flow", 2, 4, steps=4, rows=4, size=4, width=64, layers=2),
        Case("tiny-motion", "motion", 2, 4, steps=3, rows=4, size=6, width=16),
    )
}


def case_named(name: str, **changes: Any) -> Case:
    """A case, with the fields that are given (not None) in place of its own.

    Raises:
        ConfigError: no such case, or samples that do not divide into forward passes.
    """
    if name not in CASES:
        raise ConfigError(f"no benchmark case {name!r}", suggestion(name, CASES))
    case = replace(CASES[name], **{key: value for key, value in changes.items() if value is not None})
    if case.samples % case.rows:
        raise ConfigError(f"{case.samples} samples in forward passes of {case.rows}", "make prompts x group a multiple")
    return case


def denoiser_of(case: Case) -> nn.Module:
    """`denoiser(x, timestep, **condition)` with the same random weights in every process, without dropout."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if case.denoiser == "motion":
            return _motion(case)
        return DiffusersDenoiser(_unet(case) if case.denoiser == "unet" else _flow(case))


def _unet(case: Case) -> nn.Module:
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=case.size,
        in_channels=4,
        out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        block_out_channels=(case.width, 2 * case.width),
        layers_per_block=case.layers,
        cross_attention_dim=TEXT_WIDTH,
        attention_head_dim=8,
        norm_num_groups=8,
    )


def _flow(case: Case) -> nn.Module:
    from diffusers import SD3Transformer2DModel

    return SD3Transformer2DModel(
        sample_size=case.size,
        num_layers=case.layers,
        num_attention_heads=case.width // 64,
        attention_head_dim=64,
        joint_attention_dim=TEXT_WIDTH,
        caption_projection_dim=case.width,
        pooled_projection_dim=POOLED,
    )


def _motion(case: Case) -> nn.Module:
    from anygrpo.denoising.motion.model import MotionDenoiser
    from anygrpo.denoising.motion.settings import MotionPolicyConfig

    config = MotionPolicyConfig(
        features=case.features,
        frames=case.size,
        width=case.width,
        layers=case.layers,
        dropout=0.0,
        condition_dropout=0.0,
    )
    return MotionDenoiser(config, TEXT_WIDTH, 1)


def scheduler_of(case: Case) -> Any:
    """Stable Diffusion's DDIM scheduler, whose last step has noise too; a motion denoiser predicts the clean sample.
    Stable Diffusion 3's for a flow."""
    from diffusers import DDIMScheduler, FlowMatchEulerDiscreteScheduler

    if case.denoiser == "flow":
        scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
        scheduler.set_timesteps(case.steps)
        return scheduler

    scheduler = DDIMScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        clip_sample=False,
        set_alpha_to_one=False,
        steps_offset=1,
        prediction_type="epsilon" if case.denoiser == "unet" else "sample",
    )
    scheduler.set_timesteps(case.steps)
    return scheduler


def conditions(case: Case, step: int) -> Condition:
    """Of the P prompts of a step, leaves [P, ...]."""
    generator = torch.Generator().manual_seed(step)
    text = torch.randn(case.prompts, TEXT_TOKENS, TEXT_WIDTH, generator=generator)
    if case.denoiser == "unet":
        return {"encoder_hidden_states": text}
    if case.denoiser == "flow":
        pooled = torch.randn(case.prompts, POOLED, generator=generator)
        return {"encoder_hidden_states": text, "pooled_projections": pooled}
    return {
        "text": text[:, :1],
        "segment": torch.zeros(case.prompts, case.size, dtype=torch.long),
        "frames": torch.ones(case.prompts, case.size, dtype=torch.bool),
        "dropped": torch.zeros(case.prompts, dtype=torch.bool),
    }


def reward_of(latents: Tensor) -> Tensor:
    """Some reward that differs between samples: minus the mean square of each latent [n, *E]; [n]."""
    return -latents.float().square().flatten(1).mean(1)
