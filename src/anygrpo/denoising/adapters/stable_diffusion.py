"""Stable Diffusion 1 and 2, XL, and 3 / 3.5."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.denoising.adapters.base import Adapter
from anygrpo.denoising.denoiser import Condition, DiffusersDenoiser


class StableDiffusion(Adapter):
    """UNet, one CLIP encoder, noise or v prediction, integer timesteps."""

    component, flow = "unet", False
    optional = ("safety_checker", "feature_extractor", "image_encoder")

    def check(self) -> None:
        if self.model.config.in_channels != self.pipe.vae.config.latent_channels:
            raise self.refuse(
                f"has a UNet of {self.model.config.in_channels} input channels and a VAE of "
                f"{self.pipe.vae.config.latent_channels}: one for inpainting or editing",
                "a text-to-image pipeline, or parts of your own (policy.function)",
            )
        if getattr(self.model.config, "time_cond_proj_dim", None) is not None:
            raise self.refuse("is distilled for few steps (its UNet is told the guidance)", "its undistilled base")

    def encode(self, text: str) -> Condition:
        return {"encoder_hidden_states": self.pipe.encode_prompt([text], self.device, 1, False)[0]}


class XLDenoiser(DiffusersDenoiser):
    """SDXL's UNet, which takes the pooled text and the size numbers in one dict."""

    def arguments(self, condition: dict[str, Tensor]) -> dict[str, Any]:
        added = ("text_embeds", "time_ids")
        rest = {k: v for k, v in condition.items() if k not in added}
        return rest | {"added_cond_kwargs": {k: condition[k] for k in added}}


class StableDiffusionXL(StableDiffusion):
    """Both encoders' last but one layer, the second's pooled vector, and the sizes (original, crop, target: pixels)."""

    def denoiser(self) -> nn.Module:
        return XLDenoiser(self.model)

    def _sizes(self, pooled: Tensor) -> Tensor:
        pixels = self.pipe.vae_scale_factor * self.config.height, self.pipe.vae_scale_factor * self.config.width
        return torch.tensor([[*pixels, 0, 0, *pixels]], dtype=pooled.dtype, device=self.device)

    def encode(self, text: str) -> Condition:
        words, _, pooled, _ = self.pipe.encode_prompt(text, device=self.device, do_classifier_free_guidance=False)
        return {"encoder_hidden_states": words, "text_embeds": pooled, "time_ids": self._sizes(pooled)}

    def null(self) -> Condition:
        """As the pipeline: zeros for no negative prompt where it was trained so."""
        _, words, _, pooled = self.pipe.encode_prompt(
            "", device=self.device, negative_prompt=self.config.negative_prompt or None
        )
        return {"encoder_hidden_states": words, "text_embeds": pooled, "time_ids": self._sizes(pooled)}


class StableDiffusion3(Adapter):
    """Transformer, two CLIP encoders and T5 (or none: zeros in its place), a flow; timesteps count to 1000."""

    component, flow = "transformer", True
    optional = ("text_encoder_3", "tokenizer_3")

    def encode(self, text: str) -> Condition:
        words, _, pooled, _ = self.pipe.encode_prompt(
            text, None, None, device=self.device, do_classifier_free_guidance=False,
            max_sequence_length=self.config.text_tokens or 256,
        )  # fmt: skip
        return {"encoder_hidden_states": words, "pooled_projections": pooled}

    def levels(self, steps: int) -> dict[str, Any]:
        if not self.pipe.scheduler.config.get("use_dynamic_shifting", False):
            return {"num_inference_steps": steps}
        patch = int(self.model.config.patch_size)
        tokens = (self.config.height // patch) * (self.config.width // patch)
        return {"num_inference_steps": steps, "mu": dynamic_shift(tokens, self.pipe.scheduler.config, 1.16)}


def dynamic_shift(tokens: int, config: Any, largest: float = 1.15) -> float:
    """mu of resolution-dependent levels: linear in the image's tokens, .5 at 256 and `largest` at 4096 by default."""
    low, high = config.get("base_image_seq_len", 256), config.get("max_image_seq_len", 4096)
    first, last = config.get("base_shift", 0.5), config.get("max_shift", largest)
    return first + (tokens - low) * (last - first) / (high - low)
