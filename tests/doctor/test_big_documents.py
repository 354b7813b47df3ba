"""Documents too large to hold give the rows that small ones give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anygrpo.doctor import read
from anygrpo.doctor.readers import big_documents, detect

HISTORY = [{"step": float(i), "reward": i / 100, "kl": i / 1000} for i in range(1, 40)]
SAMPLES = [{"reward": 0.5, "text": 'he said "kl": [{ and left'} for _ in range(300)]
EVALUATIONS = [{"step": float(i), "eval_reward": 0.1} for i in range(3)]


@pytest.mark.parametrize(
    "document",
    [
        {"samples": SAMPLES, "evaluations": EVALUATIONS, "history": HISTORY},
        {"history": HISTORY, "samples": SAMPLES},
        {"run": {"config": {"lr": 1e-6}, "log": HISTORY}, "samples": SAMPLES},
        {"log_history": HISTORY},
        HISTORY,
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_the_list_of_training_is_taken_as_of_a_small_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: object, indent: int | None
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document, indent=indent))
    small = read(path)
    monkeypatch.setattr(detect, "LONG", 0)
    monkeypatch.setattr(big_documents, "CHUNK", 97)  # every name and number is cut somewhere
    large = read(path)
    assert large.rows == small.rows == HISTORY
    assert large.format == small.format


def test_of_many_lists_few_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = {f"samples_{i}": SAMPLES[:3] for i in range(20)}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**many, "history": HISTORY, **{f"z{i}": SAMPLES[:3] for i in range(20)}}))
    monkeypatch.setattr(detect, "LONG", 0)
    assert read(path).rows == HISTORY


def test_a_torn_document_gives_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    text = json.dumps({"history": HISTORY})
    path.write_text(text[: text.index('"step": 20.0')])
    monkeypatch.setattr(detect, "LONG", 0)
    assert read(path).rows == HISTORY[:19]
