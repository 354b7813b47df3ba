"""The budget of samples that is measured: which rates end the doubling, and where it is written."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from runs import table
from stages import stage_of

from anygrpo.recipe.load import parse_recipe
from anygrpo.train import budget


class Timed:
    """Sampling takes what `seconds` says of the group's size, on a clock of its own."""

    def __init__(self, monkeypatch, seconds, device="cpu"):
        self.now, self.seconds, self.drawn, self.device = 100.0, seconds, [], device
        monkeypatch.setattr(budget.time, "perf_counter", lambda: self.now)

    def sample(self, prompts, group, seed):
        self.drawn.append((len(prompts), group, seed))
        self.now += self.seconds(group)

    def parameters(self):
        return [SimpleNamespace(device=torch.device(self.device))]


def planned(smallest=2, largest=64, prompts=4):
    stage = stage_of(group_size="auto", smallest_group=smallest, largest_group=largest, prompts_per_step=prompts)
    return SimpleNamespace(stage=stage)


def cheap(policy, **sizes):
    return budget.cheap_samples(policy, ["a", "b", "c"], planned(**sizes))


def test_groups_double_as_long_as_that_is_cheap(monkeypatch):
    """Free up to 16 a prompt, in proportion from there: 16 stays."""
    policy = Timed(monkeypatch, lambda g: max(g, 16) / 16)
    assert cheap(policy) == 3 * 16
    assert policy.drawn == [(3, g, 0) for g in (4, 4, 8, 16, 32)]


@pytest.mark.parametrize(("factor", "found"), [(1.5, 64), (1.61, 4), (1.59, 64)])
def test_a_quarter_more_a_second_is_worth_it(monkeypatch, factor, found):
    """Twice the samples in `factor` of the time: 2 / 1.6 = 1.25."""
    seconds = {4: 1.0}
    for g in (8, 16, 32, 64):
        seconds[g] = seconds[g // 2] * factor
    assert cheap(Timed(monkeypatch, seconds.__getitem__)) == 3 * found


def test_the_largest_group_bounds_it(monkeypatch):
    assert cheap(Timed(monkeypatch, lambda g: 1.0), largest=16) == 3 * 16
    assert cheap(Timed(monkeypatch, lambda g: 1.0), largest=15) == 3 * 8
    policy = Timed(monkeypatch, lambda g: 1.0)
    assert cheap(policy, smallest=3, largest=5) == 3 * 3  # 5 begin, of which a whole smallest group is taken
    assert policy.drawn == [(3, 5, 0)] * 2


def test_no_step_becomes_longer_than_a_minute(monkeypatch):
    assert cheap(Timed(monkeypatch, lambda g: 29.0 if g < 16 else 30.25)) == 3 * 16
    assert cheap(Timed(monkeypatch, lambda g: 30.0)) == 3 * 64


def test_memory_that_ends_is_an_end(monkeypatch):
    freed = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append(True))

    def seconds(group):
        if group == 16:
            raise torch.cuda.OutOfMemoryError
        return 1.0

    assert cheap(Timed(monkeypatch, seconds)) == 3 * 8
    assert freed == [True]


@pytest.mark.parametrize(("used", "found"), [(0.71, 4), (0.7, 64)])
def test_a_gpu_whose_memory_is_used_is_an_end(monkeypatch, used, found):
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: used * 1000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=1000))
    assert cheap(Timed(monkeypatch, lambda g: 1.0, device="cuda")) == 3 * found


def test_a_gpu_is_waited_for_and_no_time_is_nothing(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(True))
    assert budget._seconds(Timed(monkeypatch, lambda g: 0.0), ["a"], 4) == 1e-9
    assert waited == [True]
    assert budget._seconds(Timed(monkeypatch, lambda g: 2.5), ["a"], 4) == 2.5


class Task:
    def prompts(self, step, count):
        assert step == 0
        return list(range(count))


def measured(monkeypatch, **extra):
    recipe = parse_recipe(table(**extra))
    stages = [SimpleNamespace(stage=stage, task=Task()) for stage in recipe.resolved_stages()]
    policy = Timed(monkeypatch, lambda g: 1.0)
    return recipe, budget.with_measured(recipe, policy, stages), policy


AUTO = {"prompts_per_step": 5, "group_size": "auto", "smallest_group": 2, "largest_group": 8}


def test_it_is_written_where_it_was_open(monkeypatch):
    recipe, found, policy = measured(monkeypatch, algorithm=AUTO)
    assert recipe.algorithm.samples_per_step is None
    assert found.algorithm.samples_per_step == 40
    assert policy.drawn[0] == (5, 4, 0)
    assert found.model_copy(update={"algorithm": recipe.algorithm}) == recipe


@pytest.mark.parametrize(
    "extra",
    [
        {"algorithm": AUTO | {"samples_per_step": 30}},
        {"algorithm": {"prompts_per_step": 5}},
        {"algorithm": AUTO, "stages": [{"name": "a", "method": "supervised", "steps": 2}]},
    ],
)
def test_nothing_is_measured_where_nothing_is_open(monkeypatch, extra):
    recipe, found, policy = measured(monkeypatch, **extra)
    assert found is recipe
    assert policy.drawn == []


def test_stages_have_their_own_where_they_are_open(monkeypatch):
    own = {"group_size": "auto", "smallest_group": 2, "largest_group": 8}
    stages = [
        {"name": "plain", "steps": 1},
        {"name": "given", "steps": 1, "algorithm": own | {"samples_per_step": 20}},
        {"name": "open", "steps": 1, "algorithm": own},
    ]
    recipe, found, _ = measured(monkeypatch, algorithm={"prompts_per_step": 5}, stages=stages)
    assert recipe is not found
    assert [s.algorithm.get("samples_per_step") for s in found.stages] == [None, 20, 40]
    assert found.algorithm.samples_per_step is None


def test_a_recipes_own_budget_stays_beside_an_open_stage(monkeypatch):
    stages = [{"name": "open", "steps": 1, "algorithm": {"samples_per_step": "none"}}]
    recipe = parse_recipe(table(algorithm=AUTO | {"samples_per_step": 30}, stages=stages))
    made = [SimpleNamespace(stage=stage, task=Task()) for stage in recipe.resolved_stages()]
    if made[0].stage.algorithm.samples_per_step is None:
        found = budget.with_measured(recipe, Timed(monkeypatch, lambda g: 1.0), made)
        assert found.algorithm.samples_per_step == 30
