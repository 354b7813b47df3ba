"""Curves of cost: every axis in turn, each case once, numbers kept as they come, a table and a picture from them."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from anygrpo.bench.cases import case_named

SCRIPT = Path(__file__).parents[2] / "bench" / "curves.py"
BASE = case_named("tiny")


@pytest.fixture(scope="module")
def curves():
    spec = importlib.util.spec_from_file_location("bench_curves", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_curves"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def measured(curves, monkeypatch):
    """Steps that take as many seconds as there are new tokens."""
    seen = []

    def measure(case, model, steps, threads, save):
        seen.append(case)
        phases = {"generate": [1.0, 1.0], "train": [2.0, 2.0], "step": [float(case.new_tokens), 1.0]}
        return {"steps": [{"phases": phases, "tokens": 60}] * steps, "peak_gb": 0.5}

    monkeypatch.setattr(curves, "measure", measure)
    monkeypatch.setattr(curves, "model_folder", lambda name, scratch: name)
    return seen


def test_each_case_is_measured_once_and_lies_on_its_axes(curves, measured):
    kept = []
    rows = curves.run(BASE, 3, 1, float("inf"), lambda rows: kept.append(json.dumps(rows)))
    assert len(set(measured)) == len(measured) == 1 + 3 * 2 + 2
    assert measured[0] == BASE
    assert [p["value"] for p in rows["new tokens"]] == [3, 6, 12]
    assert [p["step"] for p in rows["new tokens"]] == [3.0, 6.0, 12.0]
    assert [p["value"] for p in rows["group size"]] == [2, 4, 8]
    assert [p["value"] for p in rows["weights, 1e9"]] == [0.135, 0.49]
    assert len(kept) == len(measured)
    assert json.loads(kept[-1]) == rows


def test_nothing_is_begun_that_would_end_too_late(curves, measured, monkeypatch):
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(curves.time, "monotonic", lambda: float(next(clock)))
    curves.run(BASE, 3, 1, 45.0, lambda rows: None)
    # Ten seconds between looks at the clock: begun at 10, 30; at 50 there is no time left.
    assert len(measured) == 2


def test_the_table_and_the_picture_come_from_the_file(curves, measured, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(curves.torch.cuda, "is_available", lambda: False)  # a GPU has a peak of its own at each point
    monkeypatch.setattr(sys, "argv", ["curves.py", "--base", "tiny", "--points", "2", "--out", str(tmp_path)])
    curves.main()
    (tmp_path / "curves.png").unlink()
    capsys.readouterr()
    drawn = tmp_path / "drawn"
    monkeypatch.setattr(sys, "argv", ["curves.py", "--draw", str(tmp_path / "curves.json"), "--out", str(drawn)])
    curves.main()
    assert (drawn / "curves.png").stat().st_size > 5000
    assert "| new tokens | 6 | 6.00 | 1.00 | 2.00 | 10 |  |" in capsys.readouterr().out


def test_numbers_survive_without_matplotlib(curves, measured, tmp_path, monkeypatch, capsys):
    def picture(*given):
        raise ModuleNotFoundError("No module named 'matplotlib'")

    monkeypatch.setattr(curves, "picture", picture)
    monkeypatch.setattr(sys, "argv", ["curves.py", "--base", "tiny", "--points", "1", "--out", str(tmp_path)])
    curves.main()
    assert "--draw" in capsys.readouterr().out
    assert json.loads((tmp_path / "curves.json").read_text())["axes"]["new tokens"]
