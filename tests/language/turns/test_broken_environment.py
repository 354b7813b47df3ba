"""An environment that fails in every conversation ends `anygrpo train`: 4 with its traceback where it raises, 2 where
it returns what is no message."""

from __future__ import annotations

import json

import pytest
from talking import model, tokenizer

from anygrpo.cli.main import main

RECIPE = """
[policy]
kind = "causal_lm"
model = "{folder}/model"
train = "all"
device = "cpu"
dtype = "float32"
threads = 1
max_new_tokens = 60
max_turns = 2
environment = "{folder}/code.py:Letters"
eos = {ends}
[task]
kind = "jsonl"
path = "{folder}/data.jsonl"
workers = 1
[[task.rewards]]
kind = "environment"
[algorithm]
prompts_per_step = 2
group_size = 2
[training]
steps = 1
[doctor]
mode = "off"
"""


def run(folder, reset: str, step: str) -> int:
    code = f"class Letters:\n    def reset(self, row):\n        {reset}\n"
    code += f"    def step(self, messages, calls):\n        {step}\n"
    (folder / "code.py").write_text(code)
    (folder / "data.jsonl").write_text("".join(json.dumps({"prompt": f"say {i}"}) + "\n" for i in range(8)))
    model().save_pretrained(folder / "model")
    tokenizer().save_pretrained(folder / "model")
    (folder / "recipe.toml").write_text(RECIPE.format(folder=folder, ends=list(range(20, 60))))
    return main(["train", str(folder / "recipe.toml"), "--folder", str(folder / "run"), "--quiet"])


@pytest.mark.parametrize(
    ("reset", "step", "code", "words"),
    [
        (
            "row['qestion']",
            "return None, 0.0, True",
            4,
            ["Letters.reset raised KeyError", 'code.py", line 3, in reset'],
        ),
        ("pass", "return self.gone", 4, ["AttributeError", 'code.py", line 5, in step']),
        (
            "pass",
            "return 7, 0.0, False",
            2,
            ["code.py:Letters", "Letters.step returned 7 (int)", "it has to return None, a text"],
        ),
    ],
)
def test_one_that_fails_everywhere(tmp_path, capsys, reset, step, code, words):
    assert run(tmp_path, reset, step) == code
    said = capsys.readouterr().err
    assert "the environment" in said
    assert [word for word in words if word not in said] == [], said
