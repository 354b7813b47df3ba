"""A reward that raises on every sample ends `anygrpo train` in its first step, with the traceback and exit code 4."""

import json
from pathlib import Path

import tomli_w

from anygrpo.cli.main import main

LM = Path(__file__).parents[1] / "support" / "tiny_lm.py"


def recipe(folder, reward):
    (folder / "r.py").write_text(reward)
    (folder / "data.jsonl").write_text("".join(json.dumps({"prompt": f"q{i}"}) + "\n" for i in range(20)))
    written = {
        "folder": str(folder / "run"),
        "policy": {"kind": "python", "function": f"{LM}:policy"},
        "task": {"kind": "jsonl", "path": str(folder / "data.jsonl"), "rewards": [{"function": f"{folder}/r.py:f"}]},
        "algorithm": {"prompts_per_step": 2, "group_size": 2},
        "training": {"steps": 3},
    }
    (folder / "recipe.toml").write_text(tomli_w.dumps(written))
    return str(folder / "recipe.toml")


def test_it_stops_with_exit_code_four_and_the_traceback(tmp_path, capfd):
    path = recipe(tmp_path, "def f(prompts, outputs):\n    return [o.lenght for o in outputs]\n")
    assert main(["train", path]) == 4
    said = capfd.readouterr().err
    assert "raised on all of the first" in said
    assert 'r.py", line 2, in f' in said
    assert not (tmp_path / "run" / "metrics.jsonl").exists()  # stopped before any step was spent on it
