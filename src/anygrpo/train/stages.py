"""The stages of a recipe: their tasks, where each begins and ends in the run's steps, and its numbers at a step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from anygrpo.algorithm import filters, kl, schedules
from anygrpo.core.build import build_task
from anygrpo.core.choices import chosen, forget, resolve_all
from anygrpo.core.policy import ClipDefaults
from anygrpo.core.task import Task
from anygrpo.errors import ConfigError
from anygrpo.recipe.adaptive import AdaptiveTemperature
from anygrpo.recipe.recipe import Recipe, Stage
from anygrpo.recipe.section import Schedule, Section, UserFunction
from anygrpo.recipe.training import EvaluationConfig
from anygrpo.spoken import Text


@dataclass(frozen=True)
class PlannedStage:
    """A stage with its task: steps `begin` to `end` - 1 of the run.

    Attributes:
        sampled_ahead: its rollouts are drawn while earlier steps are trained on.
    """

    stage: Stage
    task: Task
    begin: int
    end: int
    sampled_ahead: bool = False

    @property
    def refills(self) -> int:
        """Further draws of prompts that a step may take, to replace groups that its filters leave out."""
        return self.stage.algorithm.refill if self.stage.source == "policy" else 0

    @property
    def steps(self) -> int:
        return self.end - self.begin

    def evaluation_due(self, step: int, config: EvaluationConfig) -> bool:
        """Whether held-out prompts are asked once the run's `step` is over, by `every` or `every_epochs`."""
        if config.every is not None:
            return (step + 1) % config.every == 0
        if config.every_epochs is None:
            return False
        steps = config.every_epochs * self.task.size / self.stage.algorithm.prompts_per_step
        done = step + 1 - self.begin
        return math.floor(done / steps) > math.floor((done - 1) / steps)


def plan_stages(recipe: Recipe, task: Task | None = None) -> list[PlannedStage]:
    """Stages with their tasks built (one task for all stages that share its section, or the one that is here already)
    and their step ranges."""
    forget()
    tasks: dict[str, Task] = {}
    planned: list[PlannedStage] = []
    begin = 0
    for stage in recipe.resolved_stages():
        resolve_all(stage.algorithm, stage.optimizer, recipe.policy)
        key = repr(stage.task)
        if key not in tasks:
            tasks[key] = build_task(stage.task, recipe.seed) if task is None else task
        steps, size = stage.steps, tasks[key].size
        if not size and recipe.evaluation.every_epochs is not None:
            raise ConfigError(
                Text(
                    f"evaluation.every_epochs is set, but the task of stage {stage.name!r} is endless",
                    f"给出了 evaluation.every_epochs，但阶段 {stage.name!r} 的任务没有尽头",
                ),
                Text("set evaluation.every, in steps", "请设 evaluation.every，以步计"),
            )
        if steps is None:
            if not size:
                raise ConfigError(
                    Text(
                        f"stage {stage.name!r} has epochs, but its task is endless",
                        f"阶段 {stage.name!r} 给出了 epochs，但它的任务没有尽头",
                    ),
                    Text("give steps instead", "请改用 steps"),
                )
            steps = math.ceil((stage.epochs or 0) * size / stage.algorithm.prompts_per_step)
        ahead = recipe.training.samples_ahead and stage.source == "policy"
        planned.append(PlannedStage(stage, tasks[key], begin, begin + steps, ahead))
        begin += steps
    return planned


def kl_controller(stage: Stage, beta: float) -> kl.Controller:
    """The controller of the KL weight that the stage names, starting at `beta` (one that moves it: above 0)."""
    a = stage.algorithm
    made = chosen("controller", a.kl_controller)
    takes = {"minimum": "beta_min", "maximum": "beta_max"} if made.card is None else made.card.takes
    settings = {name: getattr(a, key) for name, key in takes.items()}
    return made.function(beta if a.kl_controller == "fixed" else max(beta, a.beta_min), **settings)


def at(value: float | Schedule | None, step: int, steps: int) -> float | None:
    """A number of the recipe at `step` (counted from 0) of a stage of `steps`."""
    if not isinstance(value, Schedule):
        return value
    length, kind = value.steps or steps, value.kind
    if value.function is not None:
        kind = chosen("schedule", UserFunction(function=value.function, arguments=value.arguments)).function
    return schedules.value_at(
        kind,
        value.start,
        value.end,
        min(step, length),
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
    tau_positive: float
    tau_negative: float
    rce_temperature: float
    filters: tuple[tuple[str | filters.Filter, dict[str, Any]], ...]


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
        temperature=None if isinstance(a.temperature, AdaptiveTemperature) else now(a.temperature),
        clip_low=now(a.clip_low),
        clip_high=now(a.clip_high),
        lambda_pg=now(a.lambda_pg),
        lambda_supervised=now(a.lambda_supervised),
        lambda_consistency=now(a.lambda_consistency),
        entropy_coef=now(a.entropy_coef),
        beta=now(a.beta),
        tau_positive=now(a.tau_positive),
        tau_negative=now(a.tau_negative),
        rce_temperature=now(a.rce_temperature),
        filters=tuple(_filter(f, now) for f in a.filters),
    )


def _filter(config: Section, now: Callable[[Any], Any]) -> tuple[str | filters.Filter, dict[str, Any]]:
    """A filter (a user's own: its function) and its settings at this step; counts are whole numbers."""
    if isinstance(config, UserFunction):
        own = UserFunction(function=config.function, arguments=config.arguments)
        return chosen("filter", own).function, {}
    values = {name: now(getattr(config, name)) for name in type(config).model_fields if name != "kind"}
    settings = {name: round(v) if name == "k" else v for name, v in values.items()}
    return config.kind, settings  # type: ignore[attr-defined]


def policy_settings(section: Section, step: int, steps: int) -> dict[str, float]:
    """The policy section's scheduled numbers at `step` of the whole run; plain ones need no change."""
    scheduled = {name: getattr(section, name) for name in type(section).model_fields}
    values = {name: at(v, step, steps) for name, v in scheduled.items() if isinstance(v, Schedule)}
    return {name: v for name, v in values.items() if v is not None}
