"""A picture's reward that fails on every output ends `anygrpo train`: 4 with the traceback where it raises, 2 where it
returns no numbers."""

from __future__ import annotations

import json

import pytest
from tiny_pipelines import sd15

from anygrpo.cli.main import main


@pytest.fixture
def recipe(tmp_path):
    def written(body: str) -> str:
        (tmp_path / "r.py").write_text(f"def bright(images, prompts):\n    return {body}\n")
        (tmp_path / "p.jsonl").write_text("".join(json.dumps({"prompt": f"a {i}"}) + "\n" for i in range(8)))
        (tmp_path / "r.toml").write_text(f"""
folder = "{tmp_path}/run"
[policy]
kind = "diffusion"
model = "{sd15(tmp_path)}"
sampler = "ddim"
steps = 2
height = 8
width = 8
lora.rank = 2
[task]
kind = "images"
path = "{tmp_path}/p.jsonl"
rewards = [{{ function = "{tmp_path}/r.py:bright" }}]
[algorithm]
prompts_per_step = 2
group_size = 2
[training]
steps = 2
threads = 1
[doctor]
mode = "off"
""")
        return str(tmp_path / "r.toml")

    return written


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("[image.brightness for image in images]", 4, ["raised on all of the first", 'r.py", line 2, in bright']),
        ("['good' for _ in images]", 2, ["the reward 'bright'", "it returned 'good'", "one number"]),
        ("0.5", 2, ["the reward 'bright'", "it returned 0.5", "one number"]),
        ("[1.0]", 2, ["the reward 'bright' returned 1 numbers"]),
    ],
)
def test_a_reward_that_fails_on_everything(recipe, capsys, body, code, words):
    assert main(["train", recipe(body), "--quiet"]) == code
    said = capsys.readouterr().err
    assert [word for word in words if word not in said] == [], said
