"""Text tasks: prompts are dicts {"prompt": text | messages, ...columns}, outputs are lists of texts."""

from __future__ import annotations

from typing import Any

from anygrpo.tasks.base import Task


def build(config: Any, seed: int) -> Task:
    """The task of a `[task]` table of kind arithmetic, jsonl, reasoning_gym or python.

    Raises:
        ConfigError, DataError: whatever cannot work, before the first step.
    """
    from anygrpo.tasks.text.arithmetic import Arithmetic
    from anygrpo.tasks.text.jsonl import Jsonl
    from anygrpo.tasks.text.python import build_python
    from anygrpo.tasks.text.reasoning_gym import ReasoningGym

    builders = {"arithmetic": Arithmetic, "jsonl": Jsonl, "reasoning_gym": ReasoningGym, "python": build_python}
    return builders[config.kind](config, seed)


__all__ = ["build"]
