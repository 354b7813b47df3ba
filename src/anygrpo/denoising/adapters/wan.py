"""Wan 2.1 (text to video): latents [16, frames, h, w], UMT5, a flow with timesteps to 1000."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anygrpo.denoising.adapters.base import Adapter
from anygrpo.denoising.denoiser import Condition
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


class Wan(Adapter):
    """Outputs are videos [F, 3, H, W] in [0, 1]."""

    component, flow = "transformer", True

    def check(self) -> None:
        if getattr(self.pipe, "transformer_2", None) is not None:
            raise self.refuse(
                "has two transformers that share the levels (Wan 2.2): which one to train is not known here",
                "a Wan 2.1 pipeline, or parts of your own (policy.function)",
            )
        if getattr(self.pipe.config, "expand_timesteps", False):
            raise self.refuse("has a level for every token", "a Wan 2.1 pipeline, or policy.function")
        if (self.config.frames - 1) % self.pipe.vae_scale_factor_temporal:
            raise ConfigError(
                Text(
                    f"policy.frames = {self.config.frames}: the VAE takes 1 and "
                    f"{self.pipe.vae_scale_factor_temporal} more "
                    "at a time",
                    f"policy.frames = {self.config.frames}：VAE 先取 1 帧，之后每次取 "
                    f"{self.pipe.vae_scale_factor_temporal} 帧",
                ),
                Text(
                    f"frames = {1 + 4 * self.pipe.vae_scale_factor_temporal}, say",
                    f"例如 frames = {1 + 4 * self.pipe.vae_scale_factor_temporal}",
                ),
            )

    def shape(self) -> tuple[int, ...]:
        frames = (self.config.frames - 1) // self.pipe.vae_scale_factor_temporal + 1
        return (int(self.model.config.in_channels), frames, self.config.height, self.config.width)

    def encode(self, text: str) -> Condition:
        words, _ = self.pipe.encode_prompt(
            text, do_classifier_free_guidance=False, device=self.device,
            max_sequence_length=self.config.text_tokens or 512,
        )  # fmt: skip
        return {"encoder_hidden_states": words}

    def scheduler_settings(self) -> dict[str, Any]:
        shift = self.pipe.scheduler.config.get("flow_shift", None)
        return {} if shift is None else {"shift": float(shift)}

    def _mean_std(self) -> tuple[Tensor, Tensor]:
        vae = self.pipe.vae.config
        column = lambda x: torch.tensor(x, device=self.device).reshape(-1, 1, 1, 1)  # noqa: E731
        return column(vae.latents_mean), column(vae.latents_std)

    def decode(self, latents: Tensor) -> Tensor:
        """[m, F, 3, H, W]."""
        mean, std = self._mean_std()
        videos = self.pipe.vae.decode((latents * std + mean).to(self.pipe.vae.dtype), return_dict=False)[0]
        return (videos.float() / 2 + 0.5).clamp(0, 1).transpose(1, 2)

    def to_latent(self, output: Tensor) -> Tensor:
        mean, std = self._mean_std()
        given = output.transpose(0, 1)[None].to(self.device, self.pipe.vae.dtype) * 2 - 1
        return ((self.pipe.vae.encode(given).latent_dist.mode().float() - mean) / std)[0]
