"""Motions as latents: [frames, features], standardised by the task; captions over segments of frames.

A prompt is a dict: `caption` (or `captions`, in a row), `length` (or `lengths`, one a caption) in frames, and `seed`
for held-out sampling. `decode` gives tensors [length, features].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from anygrpo.denoising.adding import add
from anygrpo.denoising.denoiser import Condition
from anygrpo.denoising.motion.model import MotionDenoiser
from anygrpo.denoising.motion.settings import MotionPolicyConfig
from anygrpo.denoising.motion.text import caption_encoder
from anygrpo.denoising.parts import Parts
from anygrpo.denoising.pipelines import FLOW_SAMPLERS, SCHEDULERS
from anygrpo.denoising.policy import DiffusionPolicy
from anygrpo.denoising.starting import start_for
from anygrpo.denoising.transitions import transitions_of
from anygrpo.errors import DataError
from anygrpo.spoken import Text


def build(config: MotionPolicyConfig, seed: int) -> DiffusionPolicy:
    """The policy of a `[policy] kind = "motion"` section: fresh weights from `seed`, or those of `model`.

    Raises:
        DataError: `model` does not exist.
        ConfigError: the weights are of another model.
    """
    encode, text_width, vocabulary = caption_encoder(config.text)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        denoiser = MotionDenoiser(config, text_width, vocabulary)
    add(denoiser, start_for(config))
    parts = Parts(
        denoiser=denoiser,
        scheduler=_scheduler(config),
        shape=(config.frames, config.features),
        encode=lambda prompts: encode_prompts(prompts, config, encode),
        decode=lambda latents, condition: cut(latents, condition["frames"]),
        to_latent=lambda motion: padded(motion, config.frames),
        null={"dropped": torch.ones(1, dtype=torch.bool)},
        valid=lambda condition: condition["frames"][..., None],
    )
    transitions = transitions_of(parts.scheduler, config.steps, config.sampler, config.eta, config.noise_level)
    return DiffusionPolicy(parts, transitions, config, seed)


def _scheduler(config: MotionPolicyConfig) -> Any:
    """MDM's: as many training levels as steps, cosine betas, predicting the clean motion; or rectified flow."""
    import diffusers

    kind = getattr(diffusers, SCHEDULERS[config.sampler])
    if config.sampler in FLOW_SAMPLERS:
        return kind(num_train_timesteps=1000)
    settings = {"beta_schedule": "squaredcos_cap_v2", "prediction_type": "sample", "clip_sample": False}
    return kind(num_train_timesteps=config.steps, **settings)


def segments(prompt: dict[str, Any], config: MotionPolicyConfig) -> tuple[list[str], list[int]]:
    """The prompt's captions in a row, and the frames of each.

    Raises:
        DataError: no caption, no length, or more of either than the policy holds.
    """
    captions = prompt.get("captions") or ([prompt["caption"]] if "caption" in prompt else [])
    lengths = prompt.get("lengths") or ([prompt["length"]] if "length" in prompt else [])
    if not captions or len(captions) != len(lengths):
        raise DataError(
            Text(
                f"a prompt has {len(captions)} captions and {len(lengths)} lengths",
                f"提示有 {len(captions)} 句描述和 {len(lengths)} 个长度",
            ),
            Text("one length a caption", "每句描述应有一个长度"),
        )
    if len(captions) > config.captions or sum(lengths) > config.frames:
        raise DataError(
            Text(
                f"a prompt has {len(captions)} captions over {sum(lengths)} frames; the policy holds {config.captions} "
                f"over {config.frames}",
                f"提示有 {len(captions)} 句描述，共 {sum(lengths)} 帧；策略容纳 {config.captions} 句、"
                f"{config.frames} 帧",
            ),
            Text("raise policy.captions or policy.frames", "请增大 policy.captions 或 policy.frames"),
        )
    return list(captions), [int(n) for n in lengths]


def encode_prompts(
    prompts: list[dict[str, Any]], config: MotionPolicyConfig, encode: Callable[[str], Tensor]
) -> Condition:
    """text [P, K, W or E], segment [P, L], frames [P, L] bool, dropped [P] bool (all False)."""
    count, size = len(prompts), config.frames
    segment, frames = torch.zeros(count, size, dtype=torch.long), torch.zeros(count, size, dtype=torch.bool)
    texts = []
    for i, prompt in enumerate(prompts):
        captions, lengths = segments(prompt, config)
        frames[i, : sum(lengths)] = True
        which = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
        segment[i, : len(which)] = which
        vectors = [encode(c) for c in captions]
        texts.append(torch.stack(vectors + [vectors[-1]] * (config.captions - len(vectors))))
    dropped = torch.zeros(count, dtype=torch.bool)
    return {"text": torch.stack(texts), "segment": segment, "frames": frames, "dropped": dropped}


def cut(latents: Tensor, frames: Tensor) -> list[Tensor]:
    return [motion[: int(real.sum())].cpu() for motion, real in zip(latents, frames)]


def padded(motion: Tensor, frames: int) -> Tensor:
    """[length, F] as [frames, F], zeros after it."""
    if motion.shape[0] > frames:
        raise DataError(
            Text(
                f"a stored motion has {motion.shape[0]} frames; the policy holds {frames}",
                f"存好的动作有 {motion.shape[0]} 帧；策略容纳 {frames} 帧",
            ),
            Text("cut it", "请截短它"),
        )
    return torch.cat([motion.float(), motion.new_zeros(frames - motion.shape[0], motion.shape[1]).float()])
