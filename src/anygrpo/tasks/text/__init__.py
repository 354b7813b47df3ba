"""Text tasks: prompts are dicts {"prompt": text | messages, ...columns}, outputs are lists of texts."""

from __future__ import annotations

import importlib
from typing import Any

from anygrpo.tasks.base import Task


def build(config: Any, seed: int) -> Task:
    """The task of a `[task]` table of kind arithmetic, jsonl, reasoning_gym or python.

    Raises:
        ConfigError, DataError: whatever cannot work, before the first step.
    """
    return importlib.import_module(f"anygrpo.tasks.text.{config.kind}").build(config, seed)


__all__ = ["build"]
