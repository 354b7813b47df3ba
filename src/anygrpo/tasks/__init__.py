"""Tasks by kind. Each module is imported only when its kind is asked for."""

from __future__ import annotations

import importlib
from typing import Any

MODULES = {
    "arithmetic": "anygrpo.tasks.text",
    "jsonl": "anygrpo.tasks.text",
    "reasoning_gym": "anygrpo.tasks.text",
    "python": "anygrpo.tasks.text",
    "digits_vqa": "anygrpo.tasks.selection",
    "demonstrations": "anygrpo.tasks.selection",
    "stored_candidates": "anygrpo.tasks.selection",
    "motion": "anygrpo.tasks.motion",
    "restoration": "anygrpo.tasks.restoration",
}


def build_task(config: Any, seed: int) -> Any:
    """The task of a recipe's [task] section."""
    return importlib.import_module(MODULES[config.kind]).build(config, seed)
