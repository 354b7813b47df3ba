"""Every recipe of the language-model area can be read, and its task built and probed."""

from pathlib import Path

import pytest

from anygrpo.core.build import build_task
from anygrpo.core.user_code import load
from anygrpo.recipe.load import load_recipe
from anygrpo.scoring import sandbox

ROOT = Path(__file__).parents[3]
RECIPES = sorted((ROOT / "recipes" / "llm").glob("*.toml"))


def test_there_are_recipes():
    assert len(RECIPES) >= 5


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_reward_of_each_recipe_tells_right_from_wrong(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    recipe = load_recipe(path)
    if any(r.kind == "code" for r in getattr(recipe.task, "rewards", ())) and sandbox.refusal():
        pytest.skip("no sandbox on this machine")
    if any(r.kind == "environment" for r in getattr(recipe.task, "rewards", ())):
        pytest.skip("its environment pays: tests/language/tasks/test_worded.py")
    if path.stem == "eyes" and not Path(recipe.task.path).exists():
        pytest.skip("its pictures and questions are made first: tests/examples/test_eyes.py")
    section = recipe.task.model_copy(update={"workers": 1, "held_out": 8})
    task = build_task(section, recipe.seed)
    try:
        held_out = task.held_out()
        assert not {str(p) for p in held_out} & {str(p) for p in task.prompts(0, 50)}
        prompts = held_out[:2]
        gold = task.score(prompts, [row[:1] for row in task.stored(prompts).actions])
        empty = task.score(prompts, [[""] for _ in prompts])
        assert bool(gold.valid.all())
        if getattr(recipe.task, "extract", "") != "tag":  # a gold answer alone carries no tags
            worst = empty.rewards.where(empty.valid, empty.rewards.new_zeros(()))
            assert bool((gold.rewards > worst).all())
    finally:
        task.close()


def test_the_example_data_is_what_its_script_writes(tmp_path, monkeypatch):
    make = load(str(ROOT / "examples" / "make_data.py") + ":write")
    module = __import__("sys").modules[make.__module__]
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    module.write("shopping.jsonl", module.shopping(400))
    module.write("functions.jsonl", module.functions())
    module.write("mixed_sums.jsonl", module.mixed_sums(80))
    for name in ("shopping.jsonl", "functions.jsonl", "mixed_sums.jsonl"):
        assert (tmp_path / name).read_text() == (ROOT / "examples" / "data" / name).read_text()


def test_the_example_task():
    task = load(str(ROOT / "examples" / "own_task.py") + ":Parity")(seed=0)
    held_out = task.held_out()
    assert task.prompts(3, 8) == task.prompts(3, 8)
    assert not {p["prompt"] for p in held_out} & {p["prompt"] for p in task.prompts(0, 500)}
    assert task.measure(held_out, task.stored(held_out).actions) == {"eval/accuracy": 1.0}
