"""The command line as a person meets it: exit codes, one clear error, no traceback."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from runs import toml_of

from anygrpo.cli.main import main
from anygrpo.train.folder import read_rows


def test_train_from_a_file_with_flags(tmp_path, capsys):
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml")
    assert main(["train", str(recipe), "--training.steps", "3", "--algorithm.group-size", "4"]) == 0
    out = capsys.readouterr().out
    assert "grpo 3/3" in out
    rows, _ = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert [r["step"] for r in rows] == [-1, 0, 1, 2]
    assert "group_size = 4" in (tmp_path / "run" / "config.toml").read_text()


def test_resume_continues(tmp_path, capsys):
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml")
    assert main(["train", str(recipe), "--training.steps", "3", "--quiet"]) == 0
    assert main(["train", "--resume", str(tmp_path / "run"), "--training.steps", "5", "--quiet"]) == 0
    assert [r["step"] for r in read_rows(tmp_path / "run" / "metrics.jsonl")[0]] == [-1, 0, 1, 2, 3, 4]


def test_dry_run_prints_the_resolved_recipe_and_starts_nothing(tmp_path, capsys):
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml")
    assert main(["train", str(recipe), "--dry-run", "--algorithm.group-size", "16"]) == 0
    out = capsys.readouterr().out
    assert "group_size = 16" in out
    assert "advantages within +- 3.75" in out
    assert not (tmp_path / "run").exists()


def test_a_dry_run_tells_of_samples_where_there_are_some(capsys):
    """A supervised stage has stored rows and no group; its warm-up is one update of its prompts, as was measured."""
    recipe = Path(__file__).parents[2] / "recipes/restoration/gates_gpu.toml"
    assert main(["train", str(recipe), "--dry-run"]) == 0
    warm, grpo = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# stage ")]
    assert warm == "# stage warm-up (supervised): 8000 steps, 48 prompts a step, 1 update a step"
    assert "256 samples, advantages within +- 2.4749, 2 updates a step" in grpo


def test_a_dry_run_speaks_chinese(tmp_path, capsys):
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml")
    assert main(["--lang", "zh", "train", str(recipe), "--dry-run", "--all", "--trial", "0"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")]
    assert len(told) >= 5
    english = [line for line in told if not re.search("[\u4e00-\u9fff]", line)]
    assert english == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["train"], 2, "either a recipe or --resume"),
        (["train", "none.toml"], 3, "no recipe at none.toml"),
        (["train", "--resume", "nowhere"], 3, "no run to continue"),
        (["train", "RECIPE", "--algorithm.bta", "1"], 2, "did you mean 'beta'"),
        (["train", "RECIPE", "--policy.function", "missing.py:f"], 3, "no file missing.py"),
        (["train", "RECIPE", "--policy.function", "TOYS:nothing"], 2, "has no 'nothing'"),
        (["train", "RECIPE", "--policy.function", "TOYS:BestArm"], 2, "does not derive from anygrpo.Policy"),
    ],
)
def test_errors_have_their_codes_and_no_traceback(tmp_path, capsys, arguments, code, words):
    from runs import TOYS

    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml")
    arguments = [a.replace("RECIPE", str(recipe)).replace("TOYS", str(TOYS)) for a in arguments]
    assert main(arguments) == code
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_no_command_prints_help(capsys):
    assert main([]) == 0
    assert "doctor" in capsys.readouterr().out


def test_an_unknown_command_is_answered_with_the_one_that_was_meant(capsys):
    assert main(["tran", "r.toml"]) == 2
    assert "did you mean 'train'?" in capsys.readouterr().err
    assert main(["fly"]) == 2
    assert "anygrpo --help lists" in capsys.readouterr().err
