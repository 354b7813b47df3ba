"""`group_size = "auto"` without `samples_per_step`: how many samples a step are cheap here, measured once."""

from __future__ import annotations

import time
from typing import Any

import torch

from anygrpo.core.policy import Policy
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.load import parse_recipe, plain_table
from anygrpo.recipe.recipe import Recipe
from anygrpo.train.parallel import from_main
from anygrpo.train.stages import PlannedStage

WORTH = 1.25
"""Twice as many samples are taken where they raise samples a second by so much."""
LONGEST = 60.0
"""Seconds of sampling in a step beyond which no more are tried."""
MEMORY = 0.7
"""Share of a GPU's memory that sampling may have taken."""


def with_measured(recipe: Recipe, policy: Policy, stages: list[PlannedStage]) -> Recipe:
    """The recipe with `samples_per_step` written in wherever it is to be measured: a resumed run finds it there."""
    open_ = [p for p in stages if p.stage.algorithm.group_size == "auto" and p.stage.source == "policy"]
    open_ = [p for p in open_ if p.stage.algorithm.samples_per_step is None]
    if not open_:
        return recipe
    table = plain_table(recipe)
    first = open_[0]
    found = from_main(cheap_samples(policy, first.task.prompts(0, first.stage.algorithm.prompts_per_step), first))
    if recipe.algorithm.group_size == "auto" and recipe.algorithm.samples_per_step is None:
        table["algorithm"]["samples_per_step"] = found
    for stage in table.get("stages", []):
        own = stage.get("algorithm", {})
        if own.get("group_size") == "auto" and "samples_per_step" not in own:
            own["samples_per_step"] = found
    return parse_recipe(table)


@torch.no_grad()
def cheap_samples(policy: Policy, prompts: list[Any], planned: PlannedStage) -> int:
    """Samples of a step: groups are doubled from twice the smallest on, as long as twice the samples are made at
    `WORTH` times the rate, within `LONGEST` seconds and `MEMORY`. (The training pass is cut into blocks: its memory
    does not grow with the step.)"""
    a = planned.stage.algorithm
    group = min(2 * a.smallest_group, a.largest_group)
    _seconds(policy, prompts, group)  # what happens at a first call alone is not measured
    rate = len(prompts) * group / _seconds(policy, prompts, group)
    while 2 * group <= a.largest_group:
        try:
            seconds = _seconds(policy, prompts, 2 * group)
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            break
        faster = len(prompts) * 2 * group / seconds
        if faster < WORTH * rate or _memory(policy) > MEMORY:
            break
        group, rate = 2 * group, faster
        if seconds > LONGEST / 2:
            break
    return _fitting(a, len(prompts), group)


def _fitting(a: AlgorithmConfig, prompts: int, group: int) -> int:
    return prompts * max(group // a.smallest_group, 1) * a.smallest_group


def _seconds(policy: Policy, prompts: list[Any], group: int) -> float:
    start = time.perf_counter()
    policy.sample(prompts, group, 0)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return max(time.perf_counter() - start, 1e-9)


def _memory(policy: Policy) -> float:
    device = policy.parameters()[0].device
    if device.type != "cuda":
        return 0.0
    return torch.cuda.max_memory_allocated(device) / torch.cuda.get_device_properties(device).total_memory
