"""A language model by name or folder: a base model, an export (merged, full, or an adapter), as a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anygrpo.errors import DataError
from anygrpo.language.build import build
from anygrpo.language.policy import CausalLM
from anygrpo.language.settings import CausalLMConfig

_MARKS = ("config.json", "adapter_config.json")


def opened(path: str, like: Any = None, **settings: Any) -> CausalLM | None:
    """The model as a policy with greedy and sampled answers; None where `path` is a folder of something else, or the
    name of no model that can be had here.

    Args:
        like: a section whose other settings (lengths, sampling, template) are taken over.
    """
    folder = Path(path)
    if folder.exists() and not any((folder / mark).is_file() for mark in _MARKS) and folder.suffix != ".gguf":
        return None
    train = "lora" if (folder / "adapter_config.json").is_file() else "all"
    try:
        own = like.model_dump(exclude_unset=True) if isinstance(like, CausalLMConfig) else {}
        return build(CausalLMConfig(**own | {"kind": "causal_lm", "model": path, "train": train} | settings), 0)
    except DataError:
        if folder.exists():
            raise
        return None
