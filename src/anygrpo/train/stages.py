"""The stages of a recipe with their tasks built, and where each begins and ends in the run's steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from anygrpo.algorithm import kl
from anygrpo.core.build import build_task
from anygrpo.core.task import Task
from anygrpo.errors import ConfigError
from anygrpo.recipe.algorithm import EvaluationConfig
from anygrpo.recipe.recipe import Recipe, Stage


@dataclass(frozen=True)
class PlannedStage:
    """A stage with its task: steps `begin` to `end` - 1 of the run."""

    stage: Stage
    task: Task
    begin: int
    end: int

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


def plan_stages(recipe: Recipe) -> list[PlannedStage]:
    """Stages with their tasks built (one task for all stages that share its section) and their step ranges."""
    tasks: dict[str, object] = {}
    planned: list[PlannedStage] = []
    begin = 0
    for stage in recipe.resolved_stages():
        key = repr(stage.task)
        if key not in tasks:
            tasks[key] = build_task(stage.task, recipe.seed)
        task = tasks[key]
        steps, size = stage.steps, task.size  # type: ignore[attr-defined]
        if not size and recipe.evaluation.every_epochs is not None:
            raise ConfigError(
                f"evaluation.every_epochs is set, but the task of stage {stage.name!r} is endless",
                "set evaluation.every, in steps",
            )
        if steps is None:
            if not size:
                raise ConfigError(f"stage {stage.name!r} has epochs, but its task is endless", "give steps instead")
            steps = math.ceil((stage.epochs or 0) * size / stage.algorithm.prompts_per_step)
        planned.append(PlannedStage(stage, task, begin, begin + steps))  # type: ignore[arg-type]
        begin += steps
    return planned


def kl_controller(stage: Stage, beta: float) -> kl.Controller:
    """The controller of the KL weight that the stage names, starting at `beta`."""
    a = stage.algorithm
    if a.kl_controller == "proportional":
        return kl.AdaptiveKL(beta, a.kl_target, a.kl_horizon)
    return kl.BandKL(beta, a.kl_low, a.kl_high) if a.kl_controller == "band" else kl.FixedKL(beta)
