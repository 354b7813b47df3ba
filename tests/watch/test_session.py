"""`anygrpo.train(policy, task)`: all that a recipe does, with objects."""

from __future__ import annotations

import json

import pytest
import torch
from runs import run_of
from toys import Bandit, BestArm

import anygrpo
import anygrpo.train.loop
from anygrpo.errors import ConfigError

TABLES = {
    "algorithm": {"prompts_per_step": 8, "group_size": 8},
    "optimizer": {"learning_rate": 0.02},
    "training": {"steps": 10, "checkpoint_every": 4},
    "doctor": {"mode": "off"},
}


def rows(run):
    return [json.loads(line) for line in (run.folder.path / "metrics.jsonl").read_text().splitlines()]


def test_objects_train_as_their_recipe_does(tmp_path):
    by_hand = anygrpo.train(Bandit(0), BestArm(0), folder=tmp_path / "a", quiet=True, **TABLES)
    recipe = run_of(tmp_path / "b")
    recipe.evaluate_start()
    anygrpo.train.loop.train(recipe)
    recipe.close()
    for name, value in by_hand.policy.net.state_dict().items():
        assert torch.equal(value, recipe.policy.net.state_dict()[name])
    rewards = [[row.get("reward/mean") for row in rows(run)] for run in (by_hand, recipe)]
    assert rewards[0] == rewards[1]


def test_it_leaves_a_whole_run_folder(tmp_path, capsys):
    tables = TABLES | {"doctor": {"mode": "watch"}}
    run = anygrpo.train(Bandit(0), BestArm(0), folder=tmp_path / "run", **tables)
    assert "run folder" in capsys.readouterr().out
    names = {path.name for path in run.folder.path.iterdir()}
    assert names >= {"config.toml", "metrics.jsonl", "checkpoints", "report.html", "doctor.json"}


def test_objects_go_on_where_a_run_ended(tmp_path):
    whole = anygrpo.train(Bandit(0), BestArm(0), folder=tmp_path / "whole", quiet=True, **TABLES)
    half = TABLES | {"training": {"steps": 10, "checkpoint_every": 4}}

    class Cut(Exception):
        pass

    class Cutting(BestArm):
        def prompts(self, step, count):
            if step == 6:
                raise Cut
            return super().prompts(step, count)

    with pytest.raises(Cut):
        anygrpo.train(Bandit(0), Cutting(0), folder=tmp_path / "half", quiet=True, **half)
    again = anygrpo.train(Bandit(0), BestArm(0), resume=tmp_path / "half", quiet=True)
    assert torch.equal(again.policy.net.weight, whole.policy.net.weight)


def test_what_cannot_be_meant(tmp_path):
    with pytest.raises(ConfigError, match="train has no 'algorythm'"):
        anygrpo.train(Bandit(0), BestArm(0), algorythm={})
    with pytest.raises(ConfigError, match=r"does not derive from anygrpo\.Policy"):
        anygrpo.train(torch.nn.Linear(2, 2), BestArm(0), folder=tmp_path / "x")
    with pytest.raises(ConfigError, match="resume goes on with the settings of its own folder"):
        anygrpo.train(Bandit(0), BestArm(0), resume=tmp_path, training={"steps": 3})
    anygrpo.train(Bandit(0), BestArm(0), folder=tmp_path / "run", quiet=True, **TABLES)
    with pytest.raises(ConfigError, match="was an object in memory"):
        anygrpo.resumed_run(tmp_path / "run")
