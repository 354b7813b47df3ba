"""The recipe's numbers at one step of a stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from anygrpo.algorithm import schedules
from anygrpo.core.policy import ClipDefaults
from anygrpo.recipe.recipe import Stage
from anygrpo.recipe.section import Schedule, Section


def at(value: float | Schedule | None, step: int, steps: int) -> float | None:
    """A number of the recipe at `step` (counted from 0) of a stage of `steps`."""
    if not isinstance(value, Schedule):
        return value
    length = value.steps or steps
    return schedules.value_at(
        value.kind,
        value.start,
        value.end,
        min(step, length - 1),
        length,
        warmup=value.warmup,
        milestones=value.milestones,
        factor=value.factor,
    )


@dataclass(frozen=True)
class Numbers:
    """Everything scheduled, evaluated for one step. Weights are those of the loss's terms."""

    learning_rate: float
    temperature: float | None
    clip_low: float | None
    clip_high: float | None
    lambda_pg: float
    lambda_supervised: float
    lambda_consistency: float
    entropy_coef: float
    beta: float
    rce_temperature: float
    filters: tuple[tuple[str, dict[str, Any]], ...]


@dataclass
class Controls:
    """Factors on the schedules, turned by the doctor; 1 means untouched. Saved with the run."""

    learning_rate: float = 1.0
    beta: float = 1.0
    beta_at_least: float = 0.0
    clip: float = 1.0


def controlled(numbers: Numbers, c: Controls, default: ClipDefaults) -> Numbers:
    """The numbers under the doctor's controls, with the policy type's clip range where the recipe names none."""
    low = default.low if numbers.clip_low is None else numbers.clip_low
    high = default.high if numbers.clip_high is None else numbers.clip_high
    return replace(
        numbers,
        learning_rate=numbers.learning_rate * c.learning_rate,
        beta=max(numbers.beta * c.beta, c.beta_at_least),
        clip_low=low * c.clip,
        clip_high=high * c.clip,
    )


def numbers_at(stage: Stage, step: int, steps: int) -> Numbers:
    def now(value: Any) -> Any:
        return at(value, step, steps)

    a = stage.algorithm
    return Numbers(
        learning_rate=now(stage.optimizer.learning_rate),
        temperature=now(a.temperature),
        clip_low=now(a.clip_low),
        clip_high=now(a.clip_high),
        lambda_pg=now(a.lambda_pg),
        lambda_supervised=now(a.lambda_supervised),
        lambda_consistency=now(a.lambda_consistency),
        entropy_coef=now(a.entropy_coef),
        beta=now(a.beta),
        rce_temperature=now(a.rce_temperature),
        filters=tuple((f.kind, _settings(f, now)) for f in a.filters),
    )


def _settings(config: Section, now: Callable[[Any], Any]) -> dict[str, Any]:
    """A filter's settings at this step; counts are whole numbers."""
    values = {name: now(getattr(config, name)) for name in type(config).model_fields if name != "kind"}
    return {name: max(1, round(v)) if name == "k" else v for name, v in values.items()}


def policy_settings(section: Section, step: int, steps: int) -> dict[str, float]:
    """The policy section's scheduled numbers at `step` of the whole run; plain ones need no change."""
    scheduled = {name: getattr(section, name) for name in type(section).model_fields}
    values = {name: at(v, step, steps) for name, v in scheduled.items() if isinstance(v, Schedule)}
    return {name: v for name, v in values.items() if v is not None}
