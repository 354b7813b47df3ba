"""The recipes of restoration train as they are written, made small; those after another start where it ended."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from anygrpo.config.load import load_recipe
from anygrpo.config.recipe import Recipe
from anygrpo.train.build import new_run
from anygrpo.train.loop import train

FOLDER = Path(__file__).parents[2] / "recipes" / "restoration"
AFTER = {"adapt": "gates", "adapt_gpu": "gates_gpu", "toolbox": "toolbox_supervised"}
"""A recipe and the one whose weights it starts from."""


def small(name: str, folder: Path, *more: str) -> Recipe:
    """One step a stage, of two crops of 16 pixels."""
    flags = ["--policy.width", "4", "--policy.device", "cpu", "--policy.patch", "8", "--task.patch", "16"]
    flags += ["--task.picture-size", "48", "--task.crops", "1", "--folder", str(folder)]
    flags += ["--training.threads", "1", "--evaluation.prompts", "2", *more]
    table = load_recipe(FOLDER / f"{name}.toml", flags).model_dump(exclude_unset=True)
    for stage in table["stages"]:
        stage |= {"steps": 1, "epochs": None, "algorithm": stage.get("algorithm", {}) | {"prompts_per_step": 2}}
    return Recipe.model_validate(table)


def trained(name: str, folder: Path, *more: str):
    run = new_run(small(name, folder, *more))
    start = {k: x.clone() for k, x in run.policy.network.state_dict().items()}
    train(run)
    run.close()
    return run.policy.network, start


@pytest.mark.parametrize("name", sorted(p.stem for p in FOLDER.glob("*.toml")))
def test_recipes_train_and_go_on_from_each_other(name: str, tmp_path: Path) -> None:
    more = []
    if name in AFTER:
        first, _ = trained(AFTER[name], tmp_path / "first")
        more = ["--policy.weights", str(tmp_path / "first")]
    network, start = trained(name, tmp_path / "run", *more)
    if name in AFTER:
        ended = first.state_dict()
        assert all(torch.equal(x, ended[k]) for k, x in start.items())
    assert any(not torch.equal(x, start[k]) for k, x in network.state_dict().items())


def test_the_larger_pair_differs_from_the_small_one_in_size_alone() -> None:
    """What both were measured with: rates drawn in the warm-up, one update a step there, heads alone afterwards."""
    here, there = (load_recipe(FOLDER / f"gates{size}.toml") for size in ("", "_gpu"))
    for recipe in (here, there):
        warm, grpo = recipe.resolved_stages()
        assert (warm.algorithm.minibatches, grpo.algorithm.minibatches) == (1, 2)
    same = ("sites", "supervised_gates", "concentration", "window", "gate_features")
    assert [getattr(here.policy, k) for k in same] == [getattr(there.policy, k) for k in same]
    assert here.optimizer == there.optimizer
