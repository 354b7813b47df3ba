"""The page that teaches GRPO computes what `anygrpo train` computes, and it learns."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import anygrpo
from anygrpo.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
SETTINGS = {"epochs": 2, "beta": 0.02, "entropy_coef": 0.01}


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name in ("own_policy", "teaching_loop"):
        sys.modules.pop(name, None)
    import own_policy
    import teaching_loop

    return own_policy, teaching_loop


def test_hand_computed_advantages(example):
    _, loop = example
    made = loop.advantages(torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.5, 0.5, 0.5, 0.5]]))
    torch.testing.assert_close(made[0], torch.tensor([1.0, -1.0, -1.0, 1.0]) * 0.75**0.5)
    assert made[1].tolist() == [0.0] * 4


@pytest.mark.parametrize("changes", [{}, {"epochs": 1, "beta": 0.0}, {"entropy_coef": 0.0, "epochs": 3}], ids=str)
def test_the_page_and_the_package_make_the_same_weights(example, changes, tmp_path):
    own, loop = example
    settings, steps = SETTINGS | changes, 12
    by_hand, ours = own.Speller(seed=1), own.Speller(seed=1)
    loop.train(by_hand, own.Rule(), steps=steps, seed_of=lambda step: step * 101 + 10, **settings)
    table = settings | {"clip_low": 0.2, "clip_high": 0.2, "filters": []}
    anygrpo.train(
        ours,
        own.Rule(),
        folder=tmp_path / "run",
        quiet=True,
        algorithm=table,
        optimizer={"learning_rate": 1e-2},
        training={"steps": steps},
    )
    start = own.Speller(seed=1)
    for name, p in by_hand.network.named_parameters():
        torch.testing.assert_close(dict(ours.network.named_parameters())[name], p, atol=1e-6, rtol=1e-5)
    moved = (by_hand.network["out"].weight - start.network["out"].weight).norm()
    assert moved > 0.1  # and it is not that nothing happened


def test_it_learns(example):
    own, loop = example
    rewards = loop.train(own.Speller(), own.Rule(), steps=40)
    assert sum(rewards[-5:]) / 5 > 3 * sum(rewards[:5]) / 5


def test_the_policy_conforms_and_trains_from_a_recipe(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file = EXAMPLES / "own_policy.py"
    assert main(["check", f"{file}:Speller", "--task", f"{file}:Rule"]) == 0
    page = (EXAMPLES.parent / "docs" / "policies.md").read_text()
    recipe = page.split("```toml")[1].split("```")[0].replace("examples/own_policy.py", str(file))
    (tmp_path / "recipe.toml").write_text(recipe)
    assert main(["train", "recipe.toml", "--training.steps", "3", "--quiet"]) == 0
    assert main(["export", "runs/speller", "--to", "out"]) == 0
    assert (tmp_path / "out").is_dir()
