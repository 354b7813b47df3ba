"""`anygrpo check` attacks the user's own tests."""

import json
from types import SimpleNamespace

import pytest

from anygrpo.core.build import build_task
from anygrpo.probes.attacks import attacks
from anygrpo.probes.check import PROBES
from anygrpo.recipe.load import parse_recipe
from anygrpo.scoring import code, sandbox
from anygrpo.scoring.attacks import ATTACKS, Tried

needs_sandbox = pytest.mark.skipif(sandbox.refusal() is not None, reason="no sandbox on this machine")


def outcome(tmp_path, rewards, tests):
    rows = [{"prompt": f"q{i}", "tests": tests, "answer": "1"} for i in range(20)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {"kind": "jsonl", "path": str(tmp_path / "d.jsonl"), "rewards": rewards}
    built = build_task(parse_recipe({"policy": {"kind": "causal_lm", "model": "x"}, "task": task}).task, seed=0)
    try:
        return attacks(SimpleNamespace(task=built))
    finally:
        built.close()


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """All are tried in tests/scoring/test_attacks.py."""
    monkeypatch.setattr("anygrpo.scoring.code.ATTACKS", dict(list(ATTACKS.items())[::12]))


@needs_sandbox
def test_sound_tests(tmp_path):
    made = outcome(tmp_path, [{"kind": "code", "timeout": 2.0}], ["assert f(2) == 4", "assert f(3) == 9"])
    assert (made.status, made.numbers["tried"], made.numbers["earned"]) == ("ok", 2 * len(code.ATTACKS), 0)


@needs_sandbox
def test_weak_tests(tmp_path):
    made = outcome(tmp_path, [{"kind": "code", "timeout": 2.0}], ["assert not f(2)"])
    assert made.status == "warning"
    assert "returns nothing" in made.say("en")


def test_no_code(tmp_path):
    assert outcome(tmp_path, [{"kind": "exact"}], []).status == "not applicable"


def test_a_judge_that_can_be_had_is_serious():
    tried = [Tried(0, "leaves early", True, 1.0), Tried(0, "returns 0", False, 0.0)]
    task = SimpleNamespace(prompts=lambda step, count: [], attacked=lambda prompts: tried)
    made = attacks(SimpleNamespace(task=task))
    assert made.status == "serious"
    assert made.say("en") == "1 of 1 attacks earned a reward: leaves early"
    assert "1" in made.say("zh")


def test_it_is_among_the_probes():
    assert PROBES["attacks"] is attacks
