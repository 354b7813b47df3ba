"""Where stages lie, and their numbers at a step."""

from __future__ import annotations

import pytest
from runs import table
from stages import numbers_of, stage_of
from toys import BestArm

from anygrpo.core.policy import ClipDefaults
from anygrpo.errors import ConfigError
from anygrpo.recipe.load import parse_recipe
from anygrpo.recipe.section import Schedule
from anygrpo.recipe.training import EvaluationConfig
from anygrpo.train.stages import (
    Controls,
    PlannedStage,
    at,
    controlled,
    kl_controller,
    numbers_at,
    plan_stages,
    policy_settings,
)


def planned(size=0, **extra):
    return plan_stages(parse_recipe(table(**extra)), BestArm(size=size))


def test_stages_follow_one_another_and_share_a_task():
    stages = [{"name": "a", "steps": 3}, {"name": "b", "steps": 0}, {"name": "c", "method": "supervised", "steps": 4}]
    made = planned(stages=stages, training={"off_policy_steps": 1}, algorithm={"refill": 2})
    assert [(p.begin, p.end, p.steps) for p in made] == [(0, 3, 3), (3, 3, 0), (3, 7, 4)]
    assert [p.sampled_ahead for p in made] == [True, True, False]
    assert [p.refills for p in made] == [2, 2, 0]
    assert made[0].task is made[2].task


def test_without_working_ahead_nothing_is_sampled_ahead():
    assert not PlannedStage(stage_of(), BestArm(), 0, 1).sampled_ahead
    assert not planned()[0].sampled_ahead


def test_one_task_for_each_section():
    recipe = parse_recipe(
        table(
            stages=[
                {"name": "a", "steps": 1},
                {"name": "b", "steps": 1, "task": {"arguments": {"size": 3}}},
                {"name": "c", "steps": 1},
            ]
        )
    )
    made = plan_stages(recipe)
    assert made[0].task is made[2].task
    assert made[0].task is not made[1].task
    assert (made[0].task.size, made[1].task.size) == (0, 3)
    assert made[0].task.seed == recipe.seed


@pytest.mark.parametrize(
    ("size", "epochs", "prompts", "steps"),
    [(20, 1, 8, 3), (16, 1, 8, 2), (20, 2.5, 8, 7), (4, 1, 8, 1), (20, 1, 20, 1)],
)
def test_epochs_are_passes_over_the_prompts(size, epochs, prompts, steps):
    made = planned(size, stages=[{"name": "a", "epochs": epochs}], algorithm={"prompts_per_step": prompts})
    assert made[0].steps == steps


def test_an_endless_task_has_no_epochs():
    with pytest.raises(ConfigError, match="has epochs, but its task is endless"):
        planned(stages=[{"name": "a", "epochs": 1}])
    with pytest.raises(ConfigError, match="every_epochs is set, but the task"):
        planned(evaluation={"every_epochs": 1.0})
    assert planned(8, evaluation={"every_epochs": 1.0})


def due(steps, size=0, begin=0, prompts=4, **config):
    stage = PlannedStage(stage_of(prompts_per_step=prompts), BestArm(size=size), begin, begin + steps)
    return [begin + s for s in range(steps) if stage.evaluation_due(begin + s, EvaluationConfig(**config))]


def test_evaluations_by_steps_and_by_passes():
    assert due(10, every=4) == [3, 7]
    assert due(10, begin=2, every=4) == [3, 7, 11]  # of the run's steps
    assert due(10) == []
    assert due(12, size=10, every_epochs=1.0) == [2, 4, 7, 9]  # 10 prompts are 2.5 steps of 4
    assert due(12, size=8, every_epochs=2.0) == [3, 7, 11]
    assert due(6, size=8, begin=5, every_epochs=1.0) == [6, 8, 10]  # of the stage's steps


# --- numbers


def test_a_number_on_a_schedule():
    line = Schedule(kind="linear", start=1.0, end=0.0)
    # The last step still moves: step s of n is at (s + 1) / (n + 1) or s / n, never at the end before it.
    values = [at(line, step, 4) for step in range(4)]
    assert values[0] == 1.0
    assert values == sorted(values, reverse=True)
    assert values[-1] > 0
    assert at(0.3, 2, 4) == 0.3
    assert at(None, 2, 4) is None
    short = Schedule(kind="linear", start=1.0, end=0.0, steps=2)
    assert [at(short, step, 4) for step in range(2)] == [at(line, step, 2) for step in range(2)]
    assert at(short, 2, 4) == at(short, 3, 4) == 0.0
    steps = Schedule(kind="step", start=1.0, milestones=(2,), factor=0.5)
    assert [at(steps, step, 4) for step in range(4)] == [1.0, 1.0, 0.5, 0.5]
    warm = Schedule(kind="constant", start=1.0, warmup=2)
    assert at(warm, 0, 4) < at(warm, 1, 4) <= at(warm, 2, 4) == 1.0


def test_a_schedule_of_ones_own(tmp_path):
    (tmp_path / "own.py").write_text(
        "def rate(start, end, progress, power=1):\n    return start + (end - start) * progress**power\n"
    )
    own = Schedule(function=f"{tmp_path}/own.py:rate", arguments={"power": 2}, start=0.0, end=1.0)
    line = Schedule(kind="linear", start=0.0, end=1.0)
    assert at(own, 2, 4) == pytest.approx(at(line, 2, 4) ** 2)
    assert at(own, 2, 4) not in (0.0, 1.0)


def test_every_number_of_a_step():
    rise = {"kind": "linear", "start": 0.0, "end": 1.0}
    names = ("clip_low", "clip_high", "lambda_pg", "lambda_supervised", "lambda_consistency", "entropy_coef", "beta")
    given = {name: 0.1 * (i + 1) for i, name in enumerate(names)}
    given |= {"tau_positive": 2.0, "tau_negative": 3.0, "rce_temperature": 0.7, "temperature": 0.9}
    stage = stage_of(optimizer={"learning_rate": 0.5}, **given)
    found = numbers_at(stage, 0, 1)
    assert {k: getattr(found, k) for k in given} == given
    assert found.learning_rate == 0.5
    for name in (*names, "tau_positive", "rce_temperature"):
        moving = {"kind": "linear", "start": 0.25, "end": 1.0} if name.startswith(("tau", "rce")) else rise
        early, late = (getattr(numbers_at(stage_of(**{name: moving}), step, 4), name) for step in (0, 2))
        assert early < late
    assert numbers_of(stage_of(temperature={"kind": "adaptive", "target": 0.5})).temperature is None


def test_filters_have_their_settings_and_counts_are_whole():
    filters = (
        {"kind": "pass_rate_band", "low": 0.2, "high": 0.8, "threshold": 0.4},
        {"kind": "top_k_by_reward", "k": {"kind": "linear", "start": 5.0, "end": 2.0}},
        {"kind": "best_and_worst", "k": 3},
    )
    made = numbers_at(stage_of(filters=filters), 1, 4).filters
    assert made[0] == ("pass_rate_band", {"low": 0.2, "high": 0.8, "threshold": 0.4})
    assert made[1][0] == "top_k_by_reward"
    assert made[1][1]["k"] in (3, 4)
    assert isinstance(made[1][1]["k"], int)
    assert made[2] == ("best_and_worst", {"k": 3})


def test_a_filter_of_ones_own(tmp_path):
    (tmp_path / "own.py").write_text(
        "def some(groups, least=0):\n    return groups.valid & (groups.rewards >= least)\n"
    )
    stage = stage_of(filters=({"function": f"{tmp_path}/own.py:some", "arguments": {"least": 2}},))
    ((run, settings),) = numbers_of(stage).filters
    assert settings == {}
    assert run.__name__ == "some"


def test_the_doctors_factors():
    numbers = numbers_of(stage_of(optimizer={"learning_rate": 0.5}, beta=0.2, clip_low=0.1))
    default = ClipDefaults(0.3, 0.4)
    found = controlled(numbers, Controls(learning_rate=0.5, beta=3.0, clip=0.5), default)
    assert (found.learning_rate, found.beta) == (0.25, pytest.approx(0.6))
    assert (found.clip_low, found.clip_high) == (0.05, 0.2)
    assert controlled(numbers, Controls(beta_at_least=0.9), default).beta == 0.9
    high = numbers_of(stage_of(clip_high=0.7))
    assert (controlled(high, Controls(), default).clip_low, controlled(high, Controls(), default).clip_high) == (
        0.3,
        0.7,
    )
    plain = controlled(numbers, Controls(), default)
    assert (plain.learning_rate, plain.beta) == (0.5, 0.2)


def test_the_controllers_have_the_recipes_numbers():
    fixed = kl_controller(stage_of(), 0.0)
    assert fixed.beta == 0.0
    a = {"kl_target": 0.3, "kl_horizon": 77, "beta_min": 0.01, "beta_max": 5.0}
    proportional = kl_controller(stage_of(kl_controller="proportional", **a), 0.2)
    assert (proportional.beta, proportional.target, proportional.horizon) == (0.2, 0.3, 77)
    assert (proportional.minimum, proportional.maximum) == (0.01, 5.0)
    assert kl_controller(stage_of(kl_controller="proportional", **a), 0.0).beta == 0.01  # 0 would stay 0
    band = kl_controller(stage_of(kl_controller="band", kl_low=0.02, kl_high=0.5, kl_factor=3.0), 0.2)
    assert (band.low, band.high, band.factor) == (0.02, 0.5, 3.0)


def test_a_controller_of_ones_own_has_its_limits(tmp_path):
    (tmp_path / "own.py").write_text("def rule(beta, kl, samples):\n    return beta * 9\n")
    made = kl_controller(stage_of(kl_controller=f"{tmp_path}/own.py:rule", beta_min=0.02, beta_max=0.5), 0.0)
    assert (made.beta, made.minimum, made.maximum) == (0.02, 0.02, 0.5)


def test_the_policys_scheduled_settings_are_of_the_whole_run():
    moving = Schedule(kind="linear", start=2.0, end=1.0)
    names = ("kind", "temperature", "top_p", "picks")
    section = type("Own", (), {"model_fields": dict.fromkeys(names), "kind": "own", "picks": 3, "top_p": None})()
    section.temperature = moving
    found = policy_settings(section, 5, 10)
    assert found == {"temperature": at(moving, 5, 10)}
    assert 1.0 < found["temperature"] < 2.0
