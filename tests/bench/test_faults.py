"""A small piece of the fault bench, and its bookkeeping."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "bench" / "faults"


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(FOLDER))
    spec = importlib.util.spec_from_file_location("fault_bench", FOLDER / "run.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["fault_bench"] = module
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(FOLDER))


def test_there_are_enough_of_them_and_all_can_be_built(bench):
    from anygrpo.doctor.rules import RULES
    from anygrpo.recipe.load import parse_recipe

    assert len(bench.FAULTS) >= 25
    assert len(bench.CONTROLS) >= 10
    names = [case.name for case in (*bench.FAULTS, *bench.CONTROLS)]
    assert len(set(names)) == len(names)
    for case in (*bench.FAULTS, *bench.CONTROLS):
        parse_recipe(case.table())
        assert set(case.accepted) <= RULES.keys(), case.name
    assert all(case.accepted for case in bench.FAULTS)
    assert not any(case.accepted for case in bench.CONTROLS)


def test_three_faults_are_named_and_two_healthy_runs_left_alone(bench, tmp_path):
    cases = {case.name: case for case in (*bench.FAULTS, *bench.CONTROLS)}
    for name in bench.SMOKE:
        result = bench.measure(cases[name], tmp_path, preflight=False)
        assert result.right, result
        assert result.first_is_right(result.alone[0] if result.alone else ""), result
        assert (result.named_at is not None) == bool(result.accepted)


def test_score_counts_first_findings_and_false_alarms(bench):
    from table import markdown

    def result(name, accepted, first, others=(), peers=None, alone=()):
        return bench.Result(
            name, "w", accepted, first, list(others), 7, ["trainable"], [], 60, 1.0, list(alone), [], peers or {}
        )

    peers = {"rldoctor": ["kl_drift"], "rlprobe": [], "rlwatch": ["entropy_collapse"]}
    text = markdown(
        [
            result("a", ("kl_blowup",), "kl_blowup", peers=peers, alone=["kl_far", "kl_blowup"]),
            result("b", ("truncation",), "dead_term", ("truncation",), peers),
            result("c", (), "-", peers=peers),
        ]
    )
    assert "| **anygrpo doctor** (log and recipe) | 1/2 | 2/2 | 0/1 |" in text
    assert "| **anygrpo doctor** (log alone) | 0/2 | 1/2 | 0/1 |" in text
    assert "| rldoctor | 1/2 | 1/2 | 1/1 |" in text
    assert "| rlprobe | 0/2 | 0/2 | 0/1 |" in text
    assert "| anygrpo check (before the run) | 2/2 named | | 1/1 |" in text


def test_our_log_under_trl_s_names(bench, tmp_path):
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": -1, "eval/accuracy": 0.1}\n'
        '{"step": 0, "reward/mean": 0.5, "groups/live": 0.75, "reward/component/share": 0.5, "kl/reference": 0.1}\n'
    )
    assert bench.trl_rows(tmp_path) == [
        {"step": 0.0, "reward": 0.5, "kl": 0.1, "frac_reward_zero_std": 0.25, "rewards/share/mean": 0.5}
    ]
