"""Parts of a policy from a saved diffusers pipeline, or from a function of yours."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.core import user_code
from anygrpo.core.device import device_of
from anygrpo.core.tree import tree_map
from anygrpo.denoising.adapters.base import Adapter
from anygrpo.denoising.adding import add
from anygrpo.denoising.denoiser import Condition
from anygrpo.denoising.own_parts import held
from anygrpo.denoising.parts import Parts
from anygrpo.denoising.settings import DiffusionPolicyConfig
from anygrpo.denoising.starting import start_for, start_of
from anygrpo.errors import ConfigError, DataError, not_installed
from anygrpo.files import json_value
from anygrpo.spoken import Text

FLOW_SAMPLERS = ("flow_grpo", "dance_grpo", "cps")
SCHEDULERS = {"ddpm": "DDPMScheduler", "ddim": "DDIMScheduler"} | dict.fromkeys(
    FLOW_SAMPLERS, "FlowMatchEulerDiscreteScheduler"
)
_ADAPTERS = "anygrpo.denoising.adapters."
ADAPTERS = {
    "StableDiffusionPipeline": _ADAPTERS + "stable_diffusion:StableDiffusion",
    "StableDiffusionXLPipeline": _ADAPTERS + "stable_diffusion:StableDiffusionXL",
    "StableDiffusion3Pipeline": _ADAPTERS + "stable_diffusion:StableDiffusion3",
    "FluxPipeline": _ADAPTERS + "flux:Flux",
    "WanPipeline": _ADAPTERS + "wan:Wan",
}
"""Pipelines whose conditioning, time scale, packing and levels are known, by diffusers' class name. No other is taken:
a denoiser that is called in the wrong unit gives pictures, only bad ones."""
_CACHED_PROMPTS = 4096
_DECODED_AT_ONCE = 4


def parts_of(config: DiffusionPolicyConfig, seed: int) -> Parts:
    """The parts a recipe names."""
    return from_pipeline(config) if config.function is None else from_function(config.function, config.arguments, seed)


def from_function(name: str, arguments: dict[str, Any], seed: int) -> Parts:
    """What `path.py:function` returns for (seed=seed, **arguments).

    Raises:
        DataError: no such file.
        ConfigError: it cannot be called so, raises, or does not return `Parts`.
    """
    parts = user_code.made(name, arguments, seed=seed)
    if not isinstance(parts, Parts):
        raise ConfigError(
            Text(f"{name} returned {type(parts).__name__}", f"{name} 返回了 {type(parts).__name__}"),
            Text("return anygrpo.denoising.build.Parts", "请返回 anygrpo.denoising.build.Parts"),
        )
    return held(name, parts)


def prompt_text(prompt: Any) -> str:
    """The text of a prompt: a string, or a dict with "prompt" or "caption"."""
    if isinstance(prompt, dict):
        text = prompt.get("prompt", prompt.get("caption"))
        if text is None:
            raise DataError(
                Text(f"a prompt has no text: {sorted(prompt)}", f"有一个提示没有文本：{sorted(prompt)}"),
                Text('give it "prompt" or "caption"', '请给出 "prompt" 或 "caption"'),
            )
        return str(text)
    return str(prompt)


def adapter_class(folder: str) -> type[Adapter]:
    """The adapter of a saved pipeline (or of the one that a run, an export or a LoRA is for), by its model_index.json.
    Nothing is loaded.

    Raises:
        DataError: no pipeline there.
        ConfigError: a pipeline of a kind that is not known here; it is named.
    """
    name = _index(folder)["_class_name"]
    if name not in ADAPTERS:
        raise ConfigError(
            Text(
                f"{folder} holds a {name}, whose conditioning and time scale are not known here",
                f"{folder} 是 {name}，不知道它的条件输入和时间尺度",
            ),
            Text(
                f"one of {', '.join(sorted(ADAPTERS))}; or make its parts yourself: policy.function (docs/motion.md)",
                f"可用：{', '.join(sorted(ADAPTERS))}；或自己给出各部分：policy.function（docs/motion.md）",
            ),
        )
    module, _, kind = ADAPTERS[name].partition(":")
    return getattr(importlib.import_module(module), kind)


def _index(folder: str) -> dict[str, Any]:
    folder = start_of(folder, "diffusion").base or folder
    try:
        index = json_value((Path(folder) / "model_index.json").read_text())
        return index | {"_class_name": str(index["_class_name"])}
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise DataError(
            Text(f"{folder}: no saved pipeline: {e}", f"{folder}：没有存好的管线：{e}"),
            Text("give the folder that pipeline.save_pretrained wrote", "请给出 pipeline.save_pretrained 写出的文件夹"),
        ) from e


def load_adapter(config: DiffusionPolicyConfig) -> Adapter:
    """The pipeline that `config.model` stands for (`anygrpo.denoising.starting`) loaded in `config.dtype` on
    `config.device`, frozen but for its denoiser. VAEs that say that half
    precision overflows (SDXL's `force_upcast`) stay in float32.

    Raises:
        DataError: the folder does not load.
        ConfigError: a kind that is not known, or a sampler of the other kind of model.
    """
    from diffusers.pipelines.pipeline_utils import DiffusionPipeline

    assert config.model is not None
    start = start_for(config)
    base = str(start.base)
    kind = adapter_class(base)
    if (config.sampler in FLOW_SAMPLERS) != kind.flow:
        raise ConfigError(
            Text(
                f"sampler = {config.sampler!r}, and {config.model} is a {'flow' if kind.flow else 'diffusion'} model",
                f"sampler = {config.sampler!r}，而 {config.model} 是{'流匹配' if kind.flow else '扩散'}模型",
            ),
            Text(
                f"one of {', '.join(FLOW_SAMPLERS) if kind.flow else 'ddim, ddpm'}",
                f"可用：{', '.join(FLOW_SAMPLERS) if kind.flow else 'ddim, ddpm'}",
            ),
        )
    dtype = torch.bfloat16 if config.dtype == "bfloat16" else torch.float32
    try:
        with warnings.catch_warnings(), quiet_loading():
            warnings.simplefilter("ignore", FutureWarning)  # newer versions say `dtype`, older ones ignore that name
            pipe: Any = DiffusionPipeline.from_pretrained(
                base, local_files_only=True, torch_dtype=dtype, **left_out(base, kind)
            )
    except MemoryError:
        raise
    except ImportError as e:
        raise not_installed(e) or _lacking(base, e) from e
    except Exception as e:  # anybody's files: diffusers may fail at them in any way
        raise DataError(
            Text(f"{base}: {e}", f"{base}：{e}"),
            Text("give the folder that pipeline.save_pretrained wrote", "请给出 pipeline.save_pretrained 写出的文件夹"),
        ) from e
    device = device_of(config.device)
    pipe.to(device)
    if getattr(pipe.vae.config, "force_upcast", False):
        pipe.vae.float()
    for module in (m for m in pipe.components.values() if isinstance(m, torch.nn.Module)):
        module.requires_grad_(False).eval()
    adapter = kind(pipe, config, device)
    adapter.beside = add(adapter.model, start, pipe, kind.component)
    adapter.model.requires_grad_(True)
    return adapter


def _lacking(base: str, error: ImportError) -> DataError:
    """For a package that a part of the pipeline needs (a tokenizer's, a quantiser's)."""
    brings = error.name and Text(f"install the package that brings {error.name}", f"请安装提供 {error.name} 的软件包")
    return DataError(
        Text(f"{base} needs a package that is not here: {error}", f"{base} 需要一个这里没有的软件包：{error}"),
        brings or Text("install the package or version that is named", "请安装上面提到的软件包或版本"),
    )


@contextmanager
def quiet_loading() -> Iterator[None]:
    """No bar of diffusers inside, where those of the Hub are off too (as our commands have it unless one asks)."""
    from diffusers.utils import logging

    off = os.environ.get("HF_HUB_DISABLE_PROGRESS_BARS", "").upper() in ("1", "ON", "YES", "TRUE")
    were_on = logging.is_progress_bar_enabled()
    if off:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if off and were_on:
            logging.enable_progress_bar()


def left_out(folder: str, kind: type[Adapter]) -> dict[str, None]:
    """Parts that the pipeline can do without (SD3's T5) and that this folder lacks: diffusers wants to be told so."""
    index = _index(folder)
    return {name: None for name in kind.optional if not any(index.get(name) or ())}


def from_pipeline(config: DiffusionPolicyConfig) -> Parts:
    """A saved text-to-image (or video) pipeline. Only the denoiser is trained; text encoders and VAE are frozen.

    Raises:
        DataError, ConfigError: see `load_adapter`.
    """
    import diffusers

    adapter = load_adapter(config)
    wanted = getattr(diffusers, SCHEDULERS[config.sampler])
    scheduler = wanted.from_config(adapter.pipe.scheduler.config, **adapter.scheduler_settings())
    with torch.no_grad():
        null = None if adapter.embedded else adapter.null()
    return Parts(
        denoiser=adapter.denoiser(),
        scheduler=scheduler,
        shape=adapter.shape(),
        encode=Remembered(adapter.encode),
        decode=lambda latents, condition: _in_slices(adapter.decode, latents),
        to_latent=torch.no_grad()(adapter.to_latent),
        null=null,
        levels=adapter.levels,
        embedded_guidance=adapter.embedded,
        beside={name: getattr(adapter.pipe, name) for name in adapter.beside},
    )


class Remembered:
    """Prompts -> condition [P, ...]. A prompt is encoded once, alone (so that its neighbours cannot matter), and kept
    in main memory."""

    def __init__(self, encode: Callable[[str], Condition]):
        self.encode = encode
        self.known: dict[str, Condition] = {}

    @torch.no_grad()
    def __call__(self, prompts: list[Any]) -> Condition:
        texts = [prompt_text(p) for p in prompts]
        for text in dict.fromkeys(texts):
            if text not in self.known:
                if len(self.known) >= _CACHED_PROMPTS:
                    self.known.pop(next(iter(self.known)))
                self.known[text] = tree_map(lambda x: x.detach().cpu(), self.encode(text))
        rows = [self.known[t] if t in self.known else self.encode(t) for t in texts]
        return {name: torch.cat([row[name].cpu() for row in rows]) for name in rows[0]}


@torch.no_grad()
def _in_slices(decode: Callable[[Tensor], Tensor], latents: Tensor) -> list[Tensor]:
    """Outputs of a few latents at a time: a VAE takes more memory for a picture than the denoiser does."""
    return [output.cpu() for part in latents.split(_DECODED_AT_ONCE) for output in decode(part)]
