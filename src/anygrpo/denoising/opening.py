"""A denoiser by name or folder: a pipeline, an export, a LoRA that names its base, MDM's file; as a policy to use."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from anygrpo.denoising.policy import DiffusionPolicy
from anygrpo.denoising.settings import DenoisingConfig, DiffusionPolicyConfig
from anygrpo.denoising.starting import LORA_FILE, named_base, start_of
from anygrpo.errors import ConfigError, DataError
from anygrpo.families import kind_of, resolve
from anygrpo.files import json_value
from anygrpo.spoken import Text

_FORMATS = ("diffusers_lora", "diffusers_weights", "mdm", "state")


def opened(path: str, like: Any = None, **settings: Any) -> DiffusionPolicy | None:
    """The denoiser with greedy outputs; None where `path` is something else.

    Args:
        like: the section whose other settings (steps, sampler, text, sizes) are taken over. Without it a pipeline is
            used as its own library does: noise-free, with its steps, guidance and size.

    Raises:
        ConfigError: a motion model, and nothing that says how it is used.
    """
    folder = Path(path)
    like = like if isinstance(like, DenoisingConfig) else None
    if like is None and _of_a_pipeline(folder):
        return _built(DiffusionPolicyConfig, _defaults(path) | {"kind": "diffusion", "model": path} | settings)
    own = _format(folder) is not None or (folder.is_file() and (folder.parent / "args.json").is_file())
    if not own and not (like is not None and _of_a_pipeline(folder)):
        return None
    if like is None:
        raise ConfigError(
            Text(f"{path} does not say how its model is used", f"{path} 没有说明它的模型怎样使用"),
            Text("--task RECIPE, or the run itself", "请给出 --task RECIPE，或运行文件夹本身"),
        )
    given = like.model_dump(exclude_unset=True) | {"kind": like.kind, "model": path}
    if isinstance(like, DiffusionPolicyConfig) and _names_no_base(folder):
        given["base"] = like.base or like.model
    if like.dtype == "float32":  # trained weights are there; adapters would be new ones
        given.pop("lora", None)
    return _built(type(like), given | settings)


def _built(kind: type[DenoisingConfig], given: dict[str, Any]) -> DiffusionPolicy:
    section: Any = kind.model_validate(given)
    policy: DiffusionPolicy = resolve(kind_of("policy", section.kind).build)(section, 0)
    return policy


def _of_a_pipeline(path: Path) -> bool:
    lora = (path / LORA_FILE).is_file() or _is_lora(path)
    return (path / "model_index.json").is_file() or (lora and _format(path) is None)


def _is_lora(file: Path) -> bool:
    """Whether a file holds adapters that are not a language model's (those have PEFT's config beside them)."""
    if not file.is_file() or file.suffix != ".safetensors" or (file.parent / "adapter_config.json").is_file():
        return False
    try:
        with safe_open(file, "pt") as found:
            return any("lora" in name for name in found.keys())  # noqa: SIM118
    except SafetensorError as error:
        raise DataError(
            Text(f"{file} cannot be read: {error}", f"{file} 无法读取：{error}"), Text("copy it again", "请重新复制")
        ) from None


def _names_no_base(path: Path) -> bool:
    """Whether a path is a LoRA whose card does not say what it is for: then it is for the recipe's own pipeline."""
    lora = (path / LORA_FILE).is_file() or _is_lora(path)
    return lora and _format(path) is None and named_base(path) is None


def _format(folder: Path) -> str | None:
    """Which of our exports a folder is."""
    try:
        found = json_value((folder / "export.json").read_text(encoding="utf-8")).get("format")
    except (OSError, ValueError, AttributeError):
        return None
    return found if found in _FORMATS else None


def _table(file: Path) -> dict[str, Any]:
    try:
        return dict(json_value(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            Text(f"{file} cannot be read: {error}", f"{file} 无法读取：{error}"),
            Text("give the folder that pipeline.save_pretrained wrote", "请给出 pipeline.save_pretrained 写出的文件夹"),
        ) from None


def _defaults(path: str) -> dict[str, Any]:
    """Steps and guidance of the pipeline's own call, its picture size, the way without noise."""
    from anygrpo.denoising.pipelines import adapter_class

    base = Path(str(start_of(path, "diffusion").base))
    kind = adapter_class(str(base))
    index = _table(base / "model_index.json")
    pipeline: Any = getattr(importlib.import_module("diffusers"), str(index.get("_class_name")))
    call = inspect.signature(pipeline.__call__).parameters
    config = _table(base / kind.component / "config.json")
    size = config.get("sample_size")
    height, width = (size, size) if isinstance(size, int) else tuple(size or (64, 64))
    guided = config.get("guidance_embeds", True)
    return {
        "sampler": "flow_grpo" if kind.flow else "ddim",
        "evaluation": "ode",
        "steps": int(call["num_inference_steps"].default),
        "guidance": float(call["guidance_scale"].default) if guided else 1.0,
        "height": int(height),
        "width": int(width),
    }
