"""Parts of a policy from a saved diffusers pipeline, or from a function of yours."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.device import device_of
from anygrpo.denoising.denoiser import Condition, DiffusersDenoiser
from anygrpo.denoising.policy import Parts
from anygrpo.denoising.settings import DiffusionPolicyConfig
from anygrpo.errors import ConfigError, DataError

SCHEDULERS = {
    "ddpm": "DDPMScheduler",
    "ddim": "DDIMScheduler",
    "flow_grpo": "FlowMatchEulerDiscreteScheduler",
    "dance_grpo": "FlowMatchEulerDiscreteScheduler",
}


def parts_of(config: DiffusionPolicyConfig, seed: int) -> Parts:
    """The parts a recipe names."""
    return from_factory(config.factory, seed) if config.factory is not None else from_pipeline(config)


def from_factory(name: str, seed: int) -> Parts:
    """Call `module:function` with the seed.

    Raises:
        DataError: it cannot be imported.
        ConfigError: it did not return `Parts`.
    """
    module, _, function = name.partition(":")
    try:
        make = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as e:
        raise DataError(f"policy.factory = {name!r}: {e}", "write it as package.module:function") from e
    parts = make(seed)
    if not isinstance(parts, Parts):
        raise ConfigError(f"{name} returned {type(parts).__name__}", "return anygrpo.denoising.build.Parts")
    return parts


def prompt_text(prompt: Any) -> str:
    """The text of a prompt: a string, or a dict with "prompt" or "caption"."""
    if isinstance(prompt, dict):
        text = prompt.get("prompt", prompt.get("caption"))
        if text is None:
            raise DataError(f"a prompt has no text: {sorted(prompt)}", 'give it "prompt" or "caption"')
        return str(text)
    return str(prompt)


def from_pipeline(config: DiffusionPolicyConfig) -> Parts:
    """A pipeline folder in the shape of Stable Diffusion (UNet, one text encoder) or Stable Diffusion 3 (transformer,
    pooled projections). Only the denoiser is trained; text encoders and VAE are frozen.

    Raises:
        DataError: the folder does not load.
    """
    import diffusers

    try:
        pipe: Any = diffusers.DiffusionPipeline.from_pretrained(config.pipeline, local_files_only=True)
    except (OSError, ValueError) as e:
        raise DataError(f"{config.pipeline}: {e}", "give the folder that pipeline.save_pretrained wrote") from e
    device = device_of(config.device)
    pipe.to(device)
    for module in (m for m in pipe.components.values() if isinstance(m, torch.nn.Module)):
        module.requires_grad_(False).eval()
    model = pipe.unet if getattr(pipe, "unet", None) is not None else pipe.transformer
    model.requires_grad_(True)
    wanted = getattr(diffusers, SCHEDULERS[config.sampler])
    return Parts(
        denoiser=DiffusersDenoiser(model),
        scheduler=wanted.from_config(pipe.scheduler.config),
        shape=(int(model.config.in_channels), config.height, config.width),
        encode=lambda prompts: _encode(pipe, [prompt_text(p) for p in prompts], device),
        decode=lambda latents, condition: list(_decode(pipe, latents)),
        to_latent=lambda image: _latent(pipe, image, device),
        null=_encode(pipe, [config.negative_prompt], device),
    )


@torch.no_grad()
def _encode(pipe: Any, texts: list[str], device: torch.device) -> Condition:
    if hasattr(pipe, "text_encoder_3"):
        embedding, _, pooled, _ = pipe.encode_prompt(
            texts, texts, texts, device=device, do_classifier_free_guidance=False
        )
        return {"encoder_hidden_states": embedding, "pooled_projections": pooled}
    embedding, _ = pipe.encode_prompt(texts, device, 1, do_classifier_free_guidance=False)
    return {"encoder_hidden_states": embedding}


def _shift_scale(pipe: Any) -> tuple[float, float]:
    shift = getattr(pipe.vae.config, "shift_factor", None)
    return float(shift or 0.0), float(pipe.vae.config.scaling_factor)


def _decode(pipe: Any, latents: Tensor) -> Tensor:
    """Images [m, 3, H, W] in [0, 1]."""
    shift, scale = _shift_scale(pipe)
    images = pipe.vae.decode((latents / scale + shift).to(pipe.vae.dtype)).sample
    return (images.float() / 2 + 0.5).clamp(0, 1)


@torch.no_grad()
def _latent(pipe: Any, image: Tensor, device: torch.device) -> Tensor:
    """The mode of the VAE's posterior of one image [3, H, W] in [0, 1]."""
    shift, scale = _shift_scale(pipe)
    posterior = pipe.vae.encode(image[None].to(device, pipe.vae.dtype) * 2 - 1).latent_dist
    return ((posterior.mode() - shift) * scale)[0].float()
