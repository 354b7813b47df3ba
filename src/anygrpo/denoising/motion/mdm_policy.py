"""MDM checkpoints as policies: the same guidance and padding in sampling and in scoring, LoRA, and the way back.

A prompt is a dict: `caption`, `length` in frames, and `seed` for held-out sampling. Outputs are [length, F], normalised
by the data set's Mean and Std as MDM's own. Where the checkpoint attends to padding (mask_frames false), padding is
sampled and seen as there, but its numbers are no part of a decision's log-prob.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.core import user_code
from anygrpo.denoising.adding import add
from anygrpo.denoising.denoiser import Condition
from anygrpo.denoising.motion import mdm
from anygrpo.denoising.motion.policy import cut, padded
from anygrpo.denoising.motion.settings import MDMPolicyConfig
from anygrpo.denoising.parts import Parts
from anygrpo.denoising.pipelines import SCHEDULERS
from anygrpo.denoising.policy import DiffusionPolicy
from anygrpo.denoising.starting import start_for
from anygrpo.denoising.transitions import transitions_of
from anygrpo.errors import ConfigError, DataError
from anygrpo.spoken import Text

TEXT_TOKENS = 22
"""MDM cuts captions to 20 tokens and the two ends."""
TARGETS = ("out_proj", "linear1", "linear2", "embed_text")
"""MDM's names of the linear layers in attention and feed-forward, and of the text's projection."""


def build(config: MDMPolicyConfig, seed: int) -> DiffusionPolicy:
    """The policy of a `[policy] kind = "mdm"` section.

    Raises:
        DataError: no checkpoint, args.json or text vectors.
        ConfigError: a variant that is not read here, tensors that do not fit, another number of steps.
    """
    network, features, levels = _network(config, seed)
    if config.steps != levels:
        raise ConfigError(
            Text(
                f"policy.steps = {config.steps}, and the network was trained with {levels} levels: "
                "respaced sampling is "
                "another policy than MDM's own",
                f"policy.steps = {config.steps}，而网络以 {levels} 个噪声级训练：重新取步的采样不是 MDM 自己的策略",
            ),
            Text(f"steps = {levels}, or the checkpoint of 50 steps", f"请设 steps = {levels}，或用 50 步的检查点"),
        )
    encode = text_encoder(config.text)
    parts = Parts(
        denoiser=network,
        scheduler=_scheduler(config),
        shape=(config.frames, features),
        encode=lambda prompts: condition_of(prompts, config.frames, encode),
        decode=lambda latents, condition: cut(latents, condition["frames"]),
        to_latent=lambda motion: padded(motion, config.frames),
        null={"dropped": torch.ones(1, dtype=torch.bool)},
        valid=lambda condition: condition["frames"][..., None],
    )
    config = targeted(config)
    table = transitions_of(parts.scheduler, config.steps, config.sampler, config.eta, config.noise_level)
    return DiffusionPolicy(parts, table, config, seed)


def targeted(config: MDMPolicyConfig) -> MDMPolicyConfig:
    """With MDM's own names of the layers that adapters go to, where the recipe names none."""
    if config.lora is None or config.lora.targets != "attention_and_feedforward":
        return config
    return config.model_copy(update={"lora": config.lora.model_copy(update={"targets": TARGETS})})


def _network(config: MDMPolicyConfig, seed: int) -> tuple[nn.Module, int, int]:
    """(network, numbers a frame, levels)."""
    if config.function is not None:
        made = user_code.made(config.function, config.arguments, seed=seed)
        if not isinstance(made, nn.Module):
            raise ConfigError(
                Text(
                    f"{config.function} returned {type(made).__name__}",
                    f"{config.function} 返回了 {type(made).__name__}",
                ),
                Text("return a torch.nn.Module", "请返回 torch.nn.Module"),
            )
        assert config.features is not None
        assert config.diffusion_steps is not None
        return made, config.features, config.diffusion_steps
    start = start_for(config)
    file = Path(str(start.base))
    arguments = mdm.read_arguments(file)
    network = mdm.from_arguments(arguments)
    mdm.load(file, network, arguments, config.average_checkpoint)
    add(network, start)
    return network, arguments.features, int(arguments["diffusion_steps"])


def _scheduler(config: MDMPolicyConfig) -> Any:
    """MDM's: cosine betas, the clean motion predicted and not clipped, the posterior's variance."""
    import diffusers

    settings = {"beta_schedule": "squaredcos_cap_v2", "prediction_type": "sample", "clip_sample": False}
    kind = getattr(diffusers, SCHEDULERS[config.sampler])
    return kind(num_train_timesteps=config.steps, **settings)


def condition_of(prompts: list[dict[str, Any]], size: int, encode: Callable[[list[str]], Tensor]) -> Condition:
    """text [P, E], frames [P, L] bool, dropped [P] bool (all False).

    Raises:
        DataError: a prompt without caption or length, or one that is longer than the policy.
    """
    frames = torch.zeros(len(prompts), size, dtype=torch.bool)
    for i, prompt in enumerate(prompts):
        if "caption" not in prompt or "length" not in prompt:
            raise DataError(
                Text(f"a prompt has {sorted(prompt)}", f"提示的内容为 {sorted(prompt)}"),
                Text("a caption and a length in frames", "应有描述，以及以帧计的长度"),
            )
        if not 1 <= int(prompt["length"]) <= size:
            raise DataError(
                Text(
                    f"a prompt of {prompt['length']} frames; the policy holds {size}",
                    f"提示有 {prompt['length']} 帧；策略容纳 {size} 帧",
                ),
                Text("policy.frames", "见 policy.frames"),
            )
        frames[i, : int(prompt["length"])] = True
    text = encode([str(p["caption"]) for p in prompts]).float()
    if text.shape[0] != len(prompts) or text.dim() != 2:
        raise ConfigError(
            Text(
                f"policy.text gave {tuple(text.shape)} for {len(prompts)} captions",
                f"policy.text 对 {len(prompts)} 句描述给出 {tuple(text.shape)}",
            ),
            Text("one vector a caption", "每句描述应有一个向量"),
        )
    return {"text": text, "frames": frames, "dropped": torch.zeros(len(prompts), dtype=torch.bool)}


def text_encoder(name: str) -> Callable[[list[str]], Tensor]:
    """Captions -> [n, E], each caption encoded once.

    Raises:
        DataError: no such file, folder or function.
    """
    if name.rpartition(":")[0].endswith(".py"):
        return _once(user_code.load(name))
    path = Path(name)
    if path.is_dir():
        return _once(_clip(name))
    if not path.is_file():
        raise DataError(
            Text(f"no text vectors at {name}", f"{name} 处没有文本向量"),
            Text(
                "a .safetensors file, path.py:function, or a CLIP folder",
                "应为 .safetensors 文件、path.py:函数，或 CLIP 文件夹",
            ),
        )
    known = vectors(path)

    def look_up(captions: list[str]) -> Tensor:
        if lacking := [c for c in captions if c not in known]:
            raise DataError(
                Text(f"{name} has no vector for {lacking[0]!r}", f"{name} 没有 {lacking[0]!r} 的向量"),
                Text("encode all captions of the task, training too", "请编码任务的全部描述，训练用的也要"),
            )
        return torch.stack([known[c] for c in captions])

    return look_up


def vectors(path: Path) -> dict[str, Tensor]:
    """Caption -> [E], of a file."""
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def _once(encode: Callable[[list[str]], Any]) -> Callable[[list[str]], Tensor]:
    known: dict[str, Tensor] = {}

    @torch.no_grad()
    def remembered(captions: list[str]) -> Tensor:
        fresh = [c for c in dict.fromkeys(captions) if c not in known]
        if fresh:
            known.update(zip(fresh, torch.as_tensor(encode(fresh)).detach().float().cpu()))
        return torch.stack([known[c] for c in captions])

    return remembered


def _clip(folder: str) -> Callable[[list[str]], Tensor]:
    """Projected text vectors of a CLIP model in float32 (MDM holds it in float16: the third digit differs)."""
    from transformers import AutoTokenizer, CLIPTextModelWithProjection

    try:
        model: Any = CLIPTextModelWithProjection.from_pretrained(folder, local_files_only=True)
        words: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise DataError(
            Text(f"policy.text = {folder!r}: {error}", f"policy.text = {folder!r}：{error}"),
            Text("a folder with a CLIP text model and tokenizer", "请给出含 CLIP 文本模型和分词器的文件夹"),
        ) from error
    model = model.eval().requires_grad_(False)

    def encode(captions: list[str]) -> Tensor:
        given = words(captions, return_tensors="pt", padding=True, truncation=True, max_length=TEXT_TOKENS)
        return model(**given).text_embeds

    return encode
