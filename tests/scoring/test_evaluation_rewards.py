"""Rewards of their own for evaluation: held-out prompts are scored by them, training prompts never."""

import json

import pytest

from anygrpo.core.build import build_task
from anygrpo.errors import ConfigError
from anygrpo.recipe.load import parse_recipe


@pytest.fixture
def make(tmp_path):
    made = []
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"question {i}", "answer": "yes"}) + "\n" for i in range(60)))

    def build(**task):
        task = {"kind": "jsonl", "path": str(data), "workers": 1, "held_out_share": 0.3} | task
        made.append(
            build_task(parse_recipe({"policy": {"kind": "causal_lm", "model": "x"}, "task": task}).task, seed=0)
        )
        return made[-1]

    yield build
    for task in made:
        task.close()


TRAIN = [{"kind": "length", "target": 2.0, "unit": "characters"}]
JUDGE = [{"kind": "exact"}, {"kind": "length", "target": 3.0, "unit": "characters", "weight": 0.0}]


def test_each_side_has_its_own(make):
    task = make(rewards=TRAIN, evaluation_rewards=JUDGE)
    train, held_out = task.prompts(0, 2), task.held_out()[:2]
    scores = task.score(train, [["yes", "no"]] * 2)
    assert scores.rewards.tolist() == [[0.5, 1.0]] * 2
    assert set(scores.components) == {"length"}
    scores = task.score(held_out, [["yes"], ["no"]])
    assert scores.rewards.tolist() == [[1.0], [0.0]]
    assert set(scores.components) == {"exact", "length"}
    assert task.measure(held_out, [["yes"], ["no"]]) == {"eval/accuracy": 0.5}
    assert task.score_async(held_out, [["yes"], ["no"]]).result().rewards.tolist() == [[1.0], [0.0]]


def test_without_them_both_sides_have_the_same(make):
    task = make(rewards=TRAIN)
    assert task.score(task.held_out()[:1], [["yes"]]).rewards.tolist() == [[0.5]]


def test_they_are_checked_when_the_recipe_is_read(make):
    with pytest.raises(ConfigError, match="reads column 'gold'"):
        make(rewards=TRAIN, evaluation_rewards=[{"kind": "exact", "column": "gold"}])


def test_accuracy_asks_only_where_its_reward_applies(make, tmp_path):
    (tmp_path / "r.py").write_text(
        "def mine(prompts, outputs):\n    return [float(o == 'yes') if p.endswith('1') else None"
        " for p, o in zip(prompts, outputs)]\n"
    )
    own = {"function": f"{tmp_path}/r.py:mine"}
    task = make(rewards=[*TRAIN, own], accuracy="mine")
    prompts = [{"prompt": f"q{i}"} for i in (1, 11, 2, 3)]
    assert task.measure(prompts, [["yes"], ["no"], ["no"], ["yes"]]) == {"eval/accuracy": 0.5}
    assert task.measure(prompts[2:], [["no"], ["yes"]]) == {}
