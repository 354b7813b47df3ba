"""What high answers share against low ones of the same prompt."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from anygrpo.doctor.samples import read_samples
from anygrpo.doctor.study import study, text_of
from anygrpo.errors import DataError


def dump(folder: Path, hack: bool, prompts: int = 20) -> Path:
    """verl's rollout dumps: a reward that pays "in conclusion", or one that pays nothing in particular."""
    rng = random.Random(0)
    for step in range(1, 9):
        rows = []
        for q in range(prompts):
            for _ in range(4):
                words = [rng.choice(["one", "two", "three", "four", "five", "six", "seven"]) for _ in range(12)]
                marked = rng.random() < 0.5
                text = " ".join([*words, "in conclusion it is so" if marked else "that is what it is now"])
                score = float(marked) if hack else rng.random()
                rows.append({"input": f"question {q}", "output": text, "score": score, "step": step, "gts": "nine"})
        (folder / f"{step}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return folder


def test_a_phrase_that_the_reward_pays_is_found_and_quoted(tmp_path: Path) -> None:
    found = study(read_samples(dump(tmp_path, hack=True)))
    assert (found.answers, found.groups) == (640, 160)
    best = found.differences[0]
    assert best.name.startswith("the phrase")
    assert abs(best.z) > 4
    assert len(best.quotes) == 3
    assert found.against_truth == {"wrong": pytest.approx(0.5, abs=0.1)}
    assert "in conclusion it is so" in text_of(found, "zh")


def test_a_fair_reward_shows_no_strong_difference(tmp_path: Path) -> None:
    found = study(read_samples(dump(tmp_path, hack=False)))
    assert [d.name for d in found.differences if abs(d.z) >= 4] == []


def test_longer_answers_over_time_are_a_drift(tmp_path: Path) -> None:
    for step in range(8):
        rows = [{"prompt": "p", "completion": "w " * (5 + 10 * step + k), "reward": k} for k in range(6)]
        (tmp_path / f"completions_{step:05d}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    first, last, z = study(read_samples(tmp_path)).drifts["length in characters"]
    assert last > 3 * first
    assert z > 4


def test_nothing_to_read_is_an_error_with_a_cure(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(DataError) as error:
            read_samples(path)
        assert error.value.cure
