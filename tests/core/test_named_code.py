"""A recipe's own functions are looked up by a dry run, wherever they are named."""

from __future__ import annotations

import pytest
from runs import TOYS, table, toml_of

from anygrpo.cli.main import main
from anygrpo.core.named_code import named
from anygrpo.recipe.load import parse_recipe


def texts(path, **reward):
    (path / "data.jsonl").write_text('{"prompt": "1", "answer": "1"}\n' * 2)
    task = {"kind": "jsonl", "path": str(path / "data.jsonl"), "rewards": [reward]}
    return table(policy={"kind": "causal_lm", "model": "m"}, task=task)


def test_policy_task_and_stages_are_named():
    recipe = table(stages=[{"name": "a", "steps": 1, "algorithm": {"advantage": "mine.py:best"}}])
    assert named(parse_recipe(recipe)) == [f"{TOYS}:policy", f"{TOYS}:BestArm", "mine.py:best"]


def test_a_sentence_is_no_function(tmp_path):
    recipe = texts(tmp_path, kind="regex", pattern="look at my file.py:name")
    assert named(parse_recipe(recipe)) == []


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        ("def close(prompts, outputs):\n    return [0.0] * len(outputs)\n", 0, "mine.py:close"),
        ("def closer(prompts, outputs):\n    return []\n", 2, "closer"),
        ("close = 3\n", 2, "int, no function"),
        ("import nothing_of_the_kind\n", 2, "nothing_of_the_kind"),
        (None, 3, "no file"),
    ],
)
def test_a_dry_run_looks_a_reward_up(tmp_path, monkeypatch, capsys, content, code, said):
    import tomli_w

    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "mine.py").write_text(content)
    (tmp_path / "r.toml").write_text(tomli_w.dumps(texts(tmp_path, function="mine.py:close")))
    assert main(["train", "r.toml", "--dry-run"]) == code
    told = capsys.readouterr()
    assert said in told.out + told.err


def test_a_toy_is_found(tmp_path, capsys):
    assert main(["train", str(toml_of(tmp_path / "run", tmp_path / "r.toml")), "--dry-run"]) == 0
    assert f"found: {TOYS}:policy, {TOYS}:BestArm" in capsys.readouterr().out
