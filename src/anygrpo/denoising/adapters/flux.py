"""Flux.1: packed latents, levels from 0 to 1, guidance as a number that the model is told."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.denoising.adapters.base import Adapter
from anygrpo.denoising.adapters.stable_diffusion import dynamic_shift
from anygrpo.denoising.denoiser import Condition, DiffusersDenoiser
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


def pack(latents: Tensor) -> Tensor:
    """[n, C, h, w] as tokens [n, h/2 w/2, 4 C]: 2 x 2 patches in the order channel, row, column."""
    n, c, h, w = latents.shape
    patches = latents.reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return patches.reshape(n, h // 2 * (w // 2), 4 * c)


def unpack(tokens: Tensor, height: int, width: int) -> Tensor:
    """The inverse of `pack`: [n, C, height, width]."""
    n, _, size = tokens.shape
    patches = tokens.reshape(n, height // 2, width // 2, size // 4, 2, 2).permute(0, 3, 1, 4, 2, 5)
    return patches.reshape(n, size // 4, height, width)


class FluxDenoiser(DiffusersDenoiser):
    """Latents [n, 16, h, w] in and out; packing and position ids are made here.

    Args:
        guidance: what a guidance-distilled model is told; None for one that is not.
    """

    def __init__(self, model: nn.Module, guidance: float | None):
        super().__init__(model)
        self.guidance = guidance

    def forward(self, x: Tensor, timestep: Tensor, **condition: Tensor) -> Tensor:
        h, w = x.shape[-2:]
        ids = torch.zeros(h // 2, w // 2, 3, device=x.device)
        ids[..., 1], ids[..., 2] = torch.arange(h // 2)[:, None], torch.arange(w // 2)
        words = condition["encoder_hidden_states"].shape[1]
        return unpack(
            self.call(
                pack(x),
                timestep,
                condition,
                img_ids=ids.flatten(0, 1),
                txt_ids=torch.zeros(words, 3, device=x.device),
                guidance=None if self.guidance is None else torch.full((len(x),), self.guidance, device=x.device),
            ),
            h,
            w,
        )


class Flux(Adapter):
    """CLIP's pooled vector and T5; shift by the image's size. `guidance` is embedded: one pass, also in training."""

    component, flow = "transformer", True

    @property
    def embedded(self) -> bool:
        return True

    def check(self) -> None:
        told = bool(self.model.config.guidance_embeds)
        if self.config.height % 2 or self.config.width % 2:
            raise ConfigError(
                Text(
                    f"latents of {self.config.height} x {self.config.width} cannot be packed in 2 x 2 patches",
                    f"{self.config.height} x {self.config.width} 的潜变量不能装成 2 x 2 的块",
                ),
                Text("even sizes", "应为偶数边长"),
            )
        if not told and self.config.guidance != 1.0:
            raise self.refuse(f"takes no guidance, and policy.guidance = {self.config.guidance}", "guidance = 1")
        if self.config.negative_prompt:
            raise self.refuse("has no unconditional pass here, so negative_prompt would do nothing", "leave it out")

    def denoiser(self) -> nn.Module:
        return FluxDenoiser(self.model, self.config.guidance if self.model.config.guidance_embeds else None)

    def shape(self) -> tuple[int, ...]:
        return (int(self.model.config.in_channels) // 4, self.config.height, self.config.width)

    def encode(self, text: str) -> Condition:
        words, pooled, _ = self.pipe.encode_prompt(
            text, None, device=self.device, max_sequence_length=self.config.text_tokens or 512
        )
        return {"encoder_hidden_states": words, "pooled_projections": pooled}

    def levels(self, steps: int) -> dict[str, Any]:
        """As the pipeline: sigmas from 1 to 1 / steps, shifted by the image's tokens where the scheduler says so."""
        config = self.pipe.scheduler.config
        given: dict[str, Any] = {"sigmas": torch.linspace(1, 1 / steps, steps, dtype=torch.float64).tolist()}
        if config.get("use_dynamic_shifting", False):
            given["mu"] = dynamic_shift(self.config.height * self.config.width // 4, config)
        return given
