"""`anygrpo check`: exit codes, JSON schema, flags, both languages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anygrpo.cli.main import main

LETTERS = Path(__file__).parents[2] / "bench" / "faults" / "letters.py"


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(
        f"""
[policy]
kind = "python"
function = "{LETTERS}:build"
[task]
kind = "python"
function = "{LETTERS}:Letters"
[algorithm]
prompts_per_step = 8
[optimizer]
learning_rate = 5e-3
"""
    )
    return str(path)


def test_a_healthy_recipe_exits_0_and_prints_rates(recipe, capsys):
    assert main(["check", recipe, "--seconds", "1"]) == 0
    shown = capsys.readouterr().out
    assert "ratio_one" in shown
    assert "what one update moves" in shown


def test_a_serious_fault_given_by_a_flag_exits_5(recipe, capsys):
    assert main(["check", recipe, "--seconds", "1", "--json", "--policy.arguments.scoring-temperature", "0.3"]) == 5
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "serious"
    first = report["findings"][1]
    assert (first["rule"], first["severity"], first["certainty"]) == ("ratio_one", "serious", "certain")
    assert first["evidence"]["abs_max"] > 0.1
    assert {"rule", "certainty", "severity", "title", "evidence", "prescription", "table"} <= first.keys()


def test_chinese(recipe, capsys):
    assert main(["check", recipe, "--seconds", "1", "--lang", "zh"]) == 0
    assert "更新前对数概率比" in capsys.readouterr().out.replace("\n", "")


def test_an_unknown_stage_is_a_usage_error(recipe, capsys):
    assert main(["check", recipe, "--stage", "warm"]) == 2
    assert "no stage 'warm'" in capsys.readouterr().err
