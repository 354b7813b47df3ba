"""Settings of bench/motion_grid.py in words, and what they make of the recipe."""

import importlib.util
from pathlib import Path

import pytest

from anygrpo.recipe.load import load_recipe

SCRIPT = Path(__file__).parents[2] / "bench/motion_grid.py"
spec = importlib.util.spec_from_file_location("motion_grid", SCRIPT)
grid = importlib.util.module_from_spec(spec)
spec.loader.exec_module(grid)


def test_the_recipe_is_left_as_it_is():
    assert grid.flags_of("recipe") == []


def test_words_change_the_recipe_and_the_later_one_wins():
    recipe = load_recipe(grid.GRPO, grid.flags_of("physical=0.3,jerk=0.4,beta=2,rate=1e-3,steps=7,prompts=8,shown=0.5"))
    task, algorithm = recipe.task, recipe.algorithm
    assert (task.skating, task.floor, task.jerk, task.limits) == (0.3, 0.3, 0.4, 0.3)
    assert (algorithm.beta, algorithm.prompts_per_step, algorithm.lambda_supervised) == (2.0, 8, 0.5)
    assert recipe.training.steps == 7
    assert (recipe.optimizer.learning_rate.start, recipe.optimizer.learning_rate.end) == (1e-3, 0.0)


@pytest.mark.parametrize("setting", ["betta=2", "recipe,beta=2"])
def test_a_word_that_is_none_ends_before_any_job(setting):
    with pytest.raises(SystemExit, match="there are shown, beta"):
        grid.flags_of(setting)
