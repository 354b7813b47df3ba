"""What an adapter knows of one kind of diffusers pipeline: conditioning, time scale, packing, levels, decoding."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from anygrpo.denoising.denoiser import Condition, DiffusersDenoiser
from anygrpo.denoising.settings import DiffusionPolicyConfig
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


class Adapter:
    """One kind of pipeline, loaded. Subclasses say what differs.

    Attributes:
        component: where the trained denoiser lies in the pipeline; the prefix of its LoRA in diffusers' files.
        flow: it predicts velocities of a flow (else noise or v of a diffusion).
        optional: parts of the pipeline that a folder may lack.
        beside: other parts of the pipeline that what training started from has changed.
        embedded: guidance is a number that the model is told, with one pass, and not two passes.
    """

    component: ClassVar[str]
    flow: ClassVar[bool]
    optional: ClassVar[tuple[str, ...]] = ()

    def __init__(self, pipe: Any, config: DiffusionPolicyConfig, device: torch.device):
        self.pipe, self.config, self.device = pipe, config, device
        self.beside: tuple[str, ...] = ()
        self._check_sizes_and_guidance()
        self.check()

    @property
    def embedded(self) -> bool:
        return False

    def check(self) -> None:
        """Raises: ConfigError for a pipeline of this kind that this adapter would get wrong."""

    def _check_sizes_and_guidance(self) -> None:
        """Latents that no patch divides leave the transformer smaller than they came; and a pipeline takes a guidance
        below 1 for none, where the formula would lead away from the prompt."""
        patch: Any = getattr(self.model.config, "patch_size", None) or 1
        patch = patch if isinstance(patch, int) else patch[-1]
        height, width = self.config.height, self.config.width
        if height % patch or width % patch:
            raise ConfigError(
                Text(
                    f"latents of {height} x {width} cannot be cut in patches of {patch}",
                    f"{height} x {width} 的潜变量不能切成边长 {patch} 的块",
                ),
                Text(f"multiples of {patch}", f"应为 {patch} 的倍数"),
            )
        if self.config.guidance < 1 and not self.embedded:
            raise self.refuse(f"takes guidance = {self.config.guidance} for none", "guidance = 1, or above it")

    @property
    def model(self) -> Any:
        return getattr(self.pipe, self.component)

    def denoiser(self) -> nn.Module:
        return DiffusersDenoiser(self.model)

    def shape(self) -> tuple[int, ...]:
        """The latent's shape E."""
        return (int(self.model.config.in_channels), self.config.height, self.config.width)

    def encode(self, text: str) -> Condition:
        """The condition of one prompt, leaves [1, ...]."""
        raise NotImplementedError

    def null(self) -> Condition:
        """The condition of the negative prompt."""
        return self.encode(self.config.negative_prompt)

    def levels(self, steps: int) -> dict[str, Any]:
        """What `scheduler.set_timesteps` is given for `steps` denoising steps."""
        return {"num_inference_steps": steps}

    def scheduler_settings(self) -> dict[str, Any]:
        """The scheduler's settings that the pipeline keeps under other names."""
        return {}

    # -- latents and pictures ------------------------------------------------------------------------------------

    def _shift_scale(self) -> tuple[Tensor, Tensor]:
        """(shift, scale): the VAE's latent is z / scale + shift; [1 or C, 1, 1]."""
        vae = self.pipe.vae.config
        shift, scale = float(getattr(vae, "shift_factor", None) or 0.0), float(vae.scaling_factor)
        mean, std = getattr(vae, "latents_mean", None), getattr(vae, "latents_std", None)
        column = lambda x: torch.as_tensor(x, device=self.device).reshape(-1, 1, 1).float()  # noqa: E731
        if mean is not None and std is not None:  # as SDXL's pipeline: z std / scale + mean
            return column(mean), scale / column(std)
        return column(shift), column(scale)

    def decode(self, latents: Tensor) -> Tensor:
        """Latents [m, *E] as images [m, 3, H, W] in [0, 1]."""
        shift, scale = self._shift_scale()
        images = self.pipe.vae.decode((latents / scale + shift).to(self.pipe.vae.dtype), return_dict=False)[0]
        return (images.float() / 2 + 0.5).clamp(0, 1)

    def to_latent(self, output: Tensor) -> Tensor:
        """The mode of the VAE's posterior of one output [3, H, W] in [0, 1]."""
        shift, scale = self._shift_scale()
        given = output[None].to(self.device, self.pipe.vae.dtype) * 2 - 1
        return ((self.pipe.vae.encode(given).latent_dist.mode().float() - shift) * scale)[0]

    def refuse(self, what: str, cure: str) -> ConfigError:
        return ConfigError(f"{self.config.model}: {type(self.pipe).__name__} {what}", cure)
