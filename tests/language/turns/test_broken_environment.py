"""An environment that fails in every conversation ends `anygrpo train`: 4 with its reason, 2 where
it returns what is no message. One that fails in some is data."""

from __future__ import annotations

import json

import pytest
from talking import SILENT, model, tokenizer

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
turns.timeout = {timeout}
environment = "{folder}/code.py:Letters"
eos = {ends}
[task]
kind = "jsonl"
path = "{folder}/data.jsonl"
workers = 1
[[task.rewards]]
kind = "environment"
[algorithm]
prompts_per_step = {prompts}
group_size = 2
[training]
steps = 1
[doctor]
mode = "off"
"""


def run(folder, reset: str, step: str, timeout: float = 60.0, prompts: int = 2, template: str = SILENT) -> int:
    code = f"import os, time\nclass Letters:\n    def reset(self, row):\n        {reset}\n"
    code += f"    def step(self, messages, calls):\n        {step}\n"
    (folder / "code.py").write_text(code)
    (folder / "data.jsonl").write_text("".join(json.dumps({"prompt": f"say {i}"}) + "\n" for i in range(8)))
    model().save_pretrained(folder / "model")
    tokenizer(template).save_pretrained(folder / "model")
    (folder / "recipe.toml").write_text(
        RECIPE.format(folder=folder, ends=list(range(20, 60)), timeout=timeout, prompts=prompts)
    )
    return main(["train", str(folder / "recipe.toml"), "--folder", str(folder / "run"), "--quiet"])


@pytest.mark.parametrize(
    ("reset", "step", "code", "words"),
    [
        (
            "row['qestion']",
            "return None, 0.0, True",
            4,
            ["Letters.reset raised KeyError", 'code.py", line 4, in reset'],
        ),
        ("pass", "return self.gone", 4, ["AttributeError", 'code.py", line 6, in step']),
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


DIES, NAN = "os._exit(3)", "return None, float('nan'), True"


@pytest.mark.parametrize(
    ("reset", "step", "words"),
    [
        (DIES, "return None, 1.0, True", "its process ended"),
        ("pass", DIES, "its process ended"),
        ("pass", NAN, "Letters.step gave a reward of nan"),
        ("pass", NAN.replace("nan", "-inf"), "Letters.step gave a reward of -inf"),
        ("return 'x' * 4000", "return None, 1.0, True", "but the model's context is 2048"),
        (  # each in its own way, so that no two have one reason
            "self.n = int(row['prompt'].split()[1])",
            "return os._exit(3) if self.n % 2 else (None, float('nan'), True)",
            "failed on all of the first 4 outputs",
        ),
    ],
)
def test_one_that_gives_nothing_anywhere(tmp_path, capsys, reset, step, words):
    assert run(tmp_path, reset, step) == 4
    said = capsys.readouterr().err
    assert "the environment" in said
    assert words in said, said


def test_one_that_is_too_slow_everywhere(tmp_path, capsys):
    assert run(tmp_path, "time.sleep(60)", "return None, 1.0, True", timeout=0.3) == 4
    assert "timed out after 0.3 s" in capsys.readouterr().err


BAD = "row['prompt'] == 'say 0'"


@pytest.mark.parametrize(
    ("reset", "step", "words"),
    [
        (f"return 'x' * (4000 if {BAD} else 1)", "return None, 1.0, True", "the model's context is 2048"),
        (f"return [dict(role='user', content='bad' if {BAD} else 'a')]", "return None, 1.0, True", "no such words"),
        ("self.row = row", f"return os._exit(3) if self.{BAD} else (None, 1.0, True)", "its process ended"),
        ("self.row = row", f"return None, float('nan' if self.{BAD} else 1), True", "a reward of nan"),
    ],
)
def test_one_bad_prompt_is_data(tmp_path, capsys, reset, step, words):
    template = "{% if messages[0].content == 'bad' %}{{ raise_exception('no such words') }}{% endif %}" + SILENT
    assert run(tmp_path, reset, step, prompts=8, template=template) == 0
    assert words in capsys.readouterr().err
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert 0 < row["invalid/share"] < 1
