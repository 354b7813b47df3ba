"""A scorer that fails on every selection ends `anygrpo train`: 4 with the traceback where it raises, 2 where it returns
what is no number; one that fails on some is data."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tomli_w

from anygrpo.cli.main import main


@pytest.fixture
def recipe(tmp_path):
    def written(scorer: str) -> str:
        (tmp_path / "own.py").write_text(scorer)
        for name, count in (("q", 12), ("c", 8)):
            rows = [{"id": f"{name}{i}", "question": f"number {i}", "answer": str(i % 4)} for i in range(count)]
            (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            table = np.random.default_rng(0).normal(size=(count, 6))
            np.savez(tmp_path / f"{name}.npz", ids=np.array([row["id"] for row in rows]), embeddings=table)
        table = {
            "folder": str(tmp_path / "run"),
            "policy": {"kind": "selector", "features": 6, "shots": 2},
            "task": {
                "kind": "judged", "queries": f"{tmp_path}/q.jsonl", "candidates": f"{tmp_path}/c.jsonl",
                "query_features": f"{tmp_path}/q.npz", "candidate_features": f"{tmp_path}/c.npz", "pool": 6,
                "scorer": {"kind": "python", "function": f"{tmp_path}/own.py:judge"},
                "reward": {"mode": "score"},
            },
            "algorithm": {"prompts_per_step": 2, "group_size": 3},
            "training": {"steps": 2, "threads": 1},
            "doctor": {"mode": "off"},
        }  # fmt: skip
        (tmp_path / "r.toml").write_text(tomli_w.dumps(table))
        return str(tmp_path / "r.toml")

    return written


def test_one_that_raises_on_everything(recipe, capsys):
    assert main(["train", recipe("def judge(query, demonstrations):\n    return query['qestion']\n"), "--quiet"]) == 4
    said = capsys.readouterr().err
    assert "own.py:judge raised on all of the first" in said
    assert 'own.py", line 2, in judge' in said
    assert "KeyError: 'qestion'" in said


@pytest.mark.parametrize("value", ["'good'", "[1, 2]", "{'score': 'x'}"])
def test_one_that_returns_no_number(recipe, capsys, value):
    assert main(["train", recipe(f"def judge(query, demonstrations):\n    return {value}\n"), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert "own.py:judge" in said
    assert "it has to return a number, or numbers by name" in said


def test_one_that_fails_on_some_is_data(recipe, capsys):
    some = "def judge(query, demonstrations):\n    return 1 / (demonstrations[0]['id'] != 'c1')\n"
    assert main(["train", recipe(some), "--quiet"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("scorer", "found"), [("judge = 3", "int"), ("def judge(query):\n    return 1.0", "too many positional arguments")]
)
def test_a_scorer_that_cannot_be_called_is_refused_before_the_run(recipe, tmp_path, capsys, scorer, found):
    assert main(["train", recipe(scorer), "--quiet"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "own.py:judge cannot be called" in said
    assert found in said
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_scorer_that_ends_the_process_is_told_by_its_line(recipe, capsys):
    assert main(["train", recipe("import sys\ndef judge(query, demonstrations):\n    sys.exit(0)"), "--quiet"]) == 2
    assert "own.py:3 in judge: SystemExit: 0" in capsys.readouterr().err
