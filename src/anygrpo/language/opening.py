"""A language model by name or folder: a base model, an export (merged, full, or an adapter), as a policy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from anygrpo.language.build import build
from anygrpo.language.policy import CausalLM
from anygrpo.language.settings import CausalLMConfig
from anygrpo.models.weights import TORCH

_MARKS = ("config.json", "adapter_config.json")


def opened(path: str, like: Any = None, **settings: Any) -> CausalLM | None:
    """The model as a policy with greedy and sampled answers; None where `path` is a folder of something else, or a path
    to nothing.

    Args:
        like: a section whose other settings (lengths, sampling, template) are taken over.

    Raises:
        DataError: a model's name that cannot be had here, or a folder that does not load.
    """
    folder = Path(path)
    known = (
        folder.suffix == ".gguf" or any((folder / mark).is_file() for mark in _MARKS) or _of_a_language_model(folder)
    )
    if folder.exists() and not known:
        return None
    if not folder.exists() and not _may_be_a_name(path):
        return None
    train = "lora" if (folder / "adapter_config.json").is_file() else "all"
    own = like.model_dump(exclude_unset=True) if isinstance(like, CausalLMConfig) else {}
    if (folder / "processor_config.json").is_file() or (folder / "preprocessor_config.json").is_file():
        own.setdefault("vision", {})
    section = CausalLMConfig.model_validate(own | {"kind": "causal_lm", "model": path, "train": train} | settings)
    return build(section, 0)


def _of_a_language_model(file: Path) -> bool:
    """Whether a file of weights lies beside transformers' config of a model, or PEFT's of an adapter."""
    if not file.is_file() or file.suffix not in (".safetensors", *TORCH):
        return False
    if (file.parent / "adapter_config.json").is_file():
        return True
    try:
        return "model_type" in json.loads((file.parent / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False


def _may_be_a_name(text: str) -> bool:
    """Whether a text that is no path here may be a model's name: of the Hub, "owner/name"; not below a folder that is
    here (runs/demo-2, misspelt)."""
    owner = text.partition("/")[0]
    return re.fullmatch(r"[\w.-]+(/[\w.-]+)?", text) is not None and not (owner != text and Path(owner).is_dir())
