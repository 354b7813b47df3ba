"""Stages for tests of the loop's parts."""

from __future__ import annotations

from typing import Any

from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.recipe import Stage
from anygrpo.recipe.training import OptimizerConfig
from anygrpo.train.stages import Numbers, numbers_at


def stage_of(method: str = "grpo", source: str = "policy", optimizer: dict[str, Any] | None = None, **a: Any) -> Stage:
    """A stage of one step; keyword arguments are the algorithm's."""
    made = AlgorithmConfig(**a), OptimizerConfig(**(optimizer or {}))
    return Stage("s", method, source, 1, None, *made, None)  # type: ignore[arg-type]


def numbers_of(stage: Stage) -> Numbers:
    return numbers_at(stage, 0, 1)
