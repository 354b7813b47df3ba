"""The record of a comparison of learning, and one real short run of our side."""

import json
from pathlib import Path

import pytest

from anygrpo.bench import learn
from anygrpo.bench.rounds import Worker
from anygrpo.cli.main import main
from anygrpo.errors import DataError

OURS = {"curve": [[0.0, 0, 0.1], [10.0, 4, 0.5], [20.0, 8, 0.8]]}
THEIRS = {"curve": [[0.0, 0, 0.1], [100.0, 4, 0.7], [200.0, 8, 0.6]]}


def test_a_record_by_hand():
    late = {"curve": [[0.0, 0, 0.1], [50.0, 4, 0.2]]}
    row = learn.record({"anygrpo": [OURS, late], "trl": [THEIRS, THEIRS]}, "trl", 0.7)
    assert row["seconds_to"] == {"anygrpo": [20.0, None], "trl": [100.0, 100.0]}
    assert row["ratio"] == 5.0  # of the seed that both reached
    assert row["step_s"] == {"anygrpo": (2.5 + 12.5) / 2, "trl": 25.0}
    assert learn.record({"anygrpo": [late], "trl": [THEIRS]}, "trl", 0.7)["ratio"] is None


def test_both_sides_are_given_the_same_work_in_alternation(monkeypatch, capsys):
    asked = []

    def run(self, arguments, threads, case):
        asked.append((self.name, arguments[3], threads))
        return OURS if self.name == "anygrpo" else THEIRS

    monkeypatch.setattr(Worker, "run", run)
    monkeypatch.setattr(Worker, "need", lambda self, packages, install: None)
    recipe = str(Path(__file__).parents[2] / "recipes/llm/demo.toml")
    assert main(["bench", "learn", "--recipe", recipe, "--seeds", "3", "5", "--threads", "1"]) == 0
    assert asked == [("anygrpo", "3", 1), ("trl", "3", 1), ("anygrpo", "5", 1), ("trl", "5", 1)]
    out = capsys.readouterr().out
    assert "anygrpo  20, 20 (seeds 3, 5); 2.5 s a step" in out
    assert "ratio    5.0" in out


def test_a_recipe_that_is_not_there():
    with pytest.raises(DataError, match="no recipe"):
        learn.compare("nowhere.toml", None, [0], 1, 1, 0.7, 1)


@pytest.mark.slow
def test_our_side_on_a_tiny_recipe(tmp_path, capsys):
    from anygrpo.bench.cases import model_folder

    folder = model_folder("shape:tiny", tmp_path)
    Path(folder, "chat_template.jinja").write_text("{% for m in messages %}{{ m['content'] }} {% endfor %}")
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(f"""
[policy]
kind = "causal_lm"
model = "{folder}"
max_new_tokens = 4
[task]
kind = "arithmetic"
held_out = 8
[[task.rewards]]
kind = "number"
[algorithm]
prompts_per_step = 2
group_size = 4
""")
    command = [
        "bench",
        "learn",
        "--recipe",
        str(recipe),
        "--vs",
        "none",
        "--seeds",
        "0",
        "--steps",
        "2",
        "--every",
        "1",
    ]
    assert main([*command, "--threads", "1", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    curve = row["curves"]["anygrpo"][0]
    assert [step for _, step, _ in curve] == [0, 1, 2]
    assert 0 < curve[1][0] < curve[2][0]
    assert row["seconds_to"] == {"anygrpo": [None]}
