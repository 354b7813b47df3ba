"""The letters policy of the fault bench, as a recipe with one thing changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from anygrpo.recipe.load import parse_recipe
from anygrpo.recipe.recipe import Recipe

LETTERS = Path(__file__).parents[2] / "bench" / "faults" / "letters.py"


def letters_recipe(
    policy: dict[str, Any] | None = None,
    task: dict[str, Any] | None = None,
    algorithm: dict[str, Any] | None = None,
    **top: Any,
) -> Recipe:
    table: dict[str, Any] = {
        "policy": {"kind": "python", "function": f"{LETTERS}:build", "arguments": policy or {}},
        "task": {"kind": "python", "function": f"{LETTERS}:Letters", "arguments": task or {}},
        "algorithm": {"prompts_per_step": 8, "group_size": 8, **(algorithm or {})},
        "optimizer": {"learning_rate": 5e-3},
        "training": {"steps": 60},
    }
    for key, value in top.items():
        table[key] = {**table[key], **value} if isinstance(table.get(key), dict) else value
    return parse_recipe(table)


@pytest.fixture(name="letters_recipe")
def _letters_recipe() -> Callable[..., Recipe]:
    torch.set_num_threads(1)
    return letters_recipe
