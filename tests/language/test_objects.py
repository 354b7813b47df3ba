"""A model, rows and rewards that are objects: ten lines of Python train what a recipe trains."""

from __future__ import annotations

import json

import pytest
import torch
from talking import model, tokenizer

import anygrpo
from anygrpo.errors import ConfigError, TrainingError
from anygrpo.watch.session import go

ROWS = [{"prompt": f"say {i}", "answer": str(i)} for i in range(12)]


def short(prompts, outputs, **columns):
    return [-len(output) / 10 for output in outputs]


def one_sample(prompt, response, answer):
    return 1.0 if response == answer else None


def test_ten_lines(tmp_path):
    """And the same numbers as the recipe that names the same things in files."""
    made, words = model(), tokenizer()
    made.save_pretrained(tmp_path / "model")
    words.save_pretrained(tmp_path / "model")
    settings = {"max_new_tokens": 8, "train": "all", "dtype": "float32", "device": "cpu", "threads": 1}
    tables = {
        "algorithm": {"prompts_per_step": 2, "group_size": 4}, "training": {"steps": 2},
        "optimizer": {"learning_rate": 1e-3}, "doctor": {"mode": "off"},
    }  # fmt: skip
    policy = anygrpo.causal_lm(made, words, **settings)
    task = anygrpo.TextRows(ROWS[:8], short, held_out=ROWS[8:])
    run = anygrpo.train(policy, task, folder=tmp_path / "objects", quiet=True, **tables)

    lines = "".join(json.dumps(row) + "\n" for row in ROWS[:8]), "".join(json.dumps(row) + "\n" for row in ROWS[8:])
    (tmp_path / "train.jsonl").write_text(lines[0])
    (tmp_path / "held.jsonl").write_text(lines[1])
    (tmp_path / "short.py").write_text(
        "def short(prompts, outputs, **c):\n    return [-len(o) / 10 for o in outputs]\n"
    )
    recipe = {
        "policy": {"kind": "causal_lm", "model": str(tmp_path / "model"), **settings},
        "task": {
            "kind": "jsonl", "path": str(tmp_path / "train.jsonl"), "held_out_path": str(tmp_path / "held.jsonl"),
            "rewards": [{"function": f"{tmp_path}/short.py:short"}],
        },
        **tables, "folder": str(tmp_path / "recipe"),
    }  # fmt: skip
    by_recipe = anygrpo.new_run(anygrpo.parse_recipe(recipe))
    go(by_recipe, quiet=True)
    rows = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("objects", "recipe")
    ]
    for mine, theirs in zip(*rows, strict=True):
        for key in {"reward/mean", "grad_norm/total", "entropy", "eval/reward"} & theirs.keys():
            assert mine[key] == pytest.approx(theirs[key], rel=1e-4), key
    assert rows[1][-1].keys() >= {"reward/mean", "grad_norm/total", "eval/reward"}
    assert run.policy is policy
    moved = [not torch.equal(p, q) for p, q in zip(made.parameters(), model().parameters())]
    assert all(moved)  # the model that was handed over is the trained one


def test_rewards_that_are_objects():
    task = anygrpo.TextRows(ROWS, {"brief": short, "right": one_sample}, system="Be brief.")
    (prompt,) = task.prompts(0, 1)
    assert [m["role"] for m in prompt["prompt"]] == ["system", "user"]
    scores = task.score([prompt], [[prompt["answer"], "xx"]])
    assert scores.components["right"][0, 0] == 1.0
    assert bool(scores.components["right"].isnan()[0, 1])
    assert scores.rewards[0].tolist() == pytest.approx([1.0 - len(prompt["answer"]) / 10, -0.2])
    assert len({p["answer"] for step in range(3) for p in task.prompts(step, 4)}) == 12
    assert task.held_out() == []


class Brief:
    def __init__(self, most=10):
        self.most = most

    def __call__(self, prompts, outputs, **columns):
        return [-len(output) / self.most for output in outputs]


class Needs(Brief):
    def __init__(self, most):
        super().__init__(most)


def test_a_class_is_made_as_where_a_recipe_names_it():
    for one, length in ((Brief, -0.2), (Brief(4), -0.5)):
        scores = anygrpo.TextRows(ROWS, one).score(ROWS[:1], [["xx"]])
        assert scores.rewards[0].tolist() == pytest.approx([length])
    with pytest.raises(ConfigError, match=r"the reward 'Needs' cannot be made: .*'most'"):
        anygrpo.TextRows(ROWS, Needs)


def test_what_does_not_fit_is_named():
    with pytest.raises(ConfigError, match=r"unknown key 'policy\.max_tokens'"):
        anygrpo.causal_lm(model(), tokenizer(), max_tokens=8)
    with pytest.raises(ConfigError, match="the reward 'abs' is called in no way that is known"):
        anygrpo.TextRows(ROWS, abs)
    with pytest.raises(ConfigError, match="there are no rows"):
        anygrpo.TextRows([], short)
    with pytest.raises(ConfigError, match="row 0 is 'say 1', without a"):
        anygrpo.TextRows(["say 1"], short)
    for wrong, error in (
        (lambda outputs: 1 / 0, TrainingError),
        (lambda outputs: ["good"] * len(outputs), ConfigError),
    ):
        with pytest.raises(error, match="of the first 2 outputs"):
            anygrpo.TextRows(ROWS, {"own": wrong}).score(ROWS[:1], [["a", "b"]])
