"""The supervised term beside another objective: stored answers of the step's prompts, replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from anygrpo.core.policy import Policy
from anygrpo.recipe.recipe import number
from anygrpo.train.batches import own_part, prepare, weigh
from anygrpo.train.collect import whole_of
from anygrpo.train.parallel import rank_seed, share
from anygrpo.train.run import Run
from anygrpo.train.stages import Numbers, PlannedStage
from anygrpo.train.update import Demonstrations


def check_demonstrations(policy: Policy, stages: list[PlannedStage]) -> None:
    """Ask the tasks for the demonstrations that later stages will need.

    Raises:
        ConfigError: a task has none.
    """
    for planned in stages:
        a = planned.stage.algorithm
        beside = planned.stage.method != "supervised" and not policy.targets_in_samples
        if beside and planned.steps and number(a.lambda_supervised):
            planned.task.stored(planned.task.prompts(0, a.prompts_per_step))


def with_demonstrations(run: Run, planned: PlannedStage, numbers: Numbers) -> tuple[Numbers, Demonstrations | None]:
    """What lambda_supervised asks for beside another objective: of each prompt of the step its stored answers (the
    best, where they have rewards). The numbers returned then leave lambda_supervised out of the sampled rows' loss.

    Called for stages that teach (`Run.teaches`); policies whose samples carry their own targets have that loss there.
    """
    stage, policy = planned.stage, run.policy
    if not numbers.lambda_supervised:
        return numbers, None
    step = run.step
    index = run.first_draws[step] if planned.refills else step - planned.begin
    every: Sequence[Any] = planned.task.prompts(index, stage.algorithm.prompts_per_step)
    prompts = share(every)
    some = prompts or [every[0]]
    with run.clock("sample"), torch.no_grad():
        rollout = policy.replay(some, planned.task.stored(some), rank_seed(run.seed(step, salt=2))).on_host()
    if not prompts:
        rollout = rollout.groups(torch.zeros(1, dtype=torch.bool))
    whole, first = whole_of(rollout)
    alone = replace(stage, method="supervised")
    batch = weigh(own_part(prepare(whole, alone, numbers, None), rollout, first), alone)
    batch = batch.rows((batch.mask.any(-1) | (batch.row_weights > 0)).nonzero()[:, 0])
    return replace(numbers, lambda_supervised=0.0), Demonstrations(batch, numbers.lambda_supervised)
