"""Beside a training loop: each finding once, soon, and cheaply."""

from __future__ import annotations

import time

from anygrpo.doctor import LiveDoctor
from anygrpo.doctor.diagnose import diagnose_log
from anygrpo.doctor.log import Log
from anygrpo.doctor.pair import compared
from anygrpo.doctor.synthetic import dull, flat, healthy
from anygrpo.doctor.words import tell


def ours(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    names = {"reward": "reward/mean", "kl": "kl/reference", "completions/clipped_ratio": "truncated/share"}
    return [{names.get(k, k): v for k, v in row.items()} for row in rows]


def test_a_healthy_run_hears_nothing_heavy() -> None:
    doctor = LiveDoctor()
    heard = [f for row in ours(healthy(300)) for f in doctor.observe(row)]
    assert [f for f in heard if f.severity != "info"] == []


def test_each_finding_once_and_the_urgent_at_once() -> None:
    doctor = LiveDoctor({"optimizer.learning_rate": 1e-6})
    rows = ours(healthy(120, completions__clipped_ratio=flat(0.6)))
    rows[33]["loss/total"] = float("nan")
    heard: list[tuple[int, str]] = [(i, f.rule) for i, row in enumerate(rows) for f in doctor.observe(row)]
    rules = [rule for _, rule in heard]
    assert rules.count("truncation") == 1
    assert (33, "nonfinite") in heard
    assert rules.count("nonfinite") == 1
    assert {rule: i for i, rule in heard}["truncation"] < 20
    assert doctor.settings["learning_rate"] == 1e-6


def test_absence_needs_patience() -> None:
    doctor = LiveDoctor(patience=60)
    when = [i for i, row in enumerate(ours(dull(120))) for f in doctor.observe(row) if f.rule == "no_learning"]
    assert when
    assert when[0] >= 59


def test_memory_is_bounded_and_the_step_is_cheap() -> None:
    doctor = LiveDoctor(keep=400)
    rows = ours(healthy(1000))
    start = time.process_time()
    for row in rows:
        doctor.observe(row)
    assert len(doctor.rows) <= 400
    assert (time.process_time() - start) / len(rows) < 0.02
    assert doctor.diagnosis().verdict == "no_objection"


def test_a_setting_without_effect() -> None:
    rows = healthy(40)
    one = diagnose_log(Log("a", "jsonl", rows), settings={"beta": 0.0})
    same = diagnose_log(Log("b", "jsonl", [dict(row) for row in rows]), settings={"beta": 0.1})
    other = diagnose_log(Log("c", "jsonl", healthy(40, kl=flat(0.3))), settings={"beta": 0.2})
    a, b, c = compared([one, same, other])
    assert "no_effect" not in {f.rule for f in (*a.findings, *c.findings)}
    found = next(f for f in b.findings if f.rule == "no_effect")
    assert (found.certainty, found.facts["names"]) == ("certain", "beta")
    assert b.verdict == "warning"


def test_the_flat_line_is_explained_within_its_first_rows() -> None:
    """Top-k by reward, dropout in scoring, stale log-probs: both causes named, with the settings to change."""
    settings = {"policy.dropout_in_scoring": True, "policy.behaviour": "first", "group_size": 15}
    doctor = LiveDoctor(settings | {"updates_per_batch": 1}, every=5)
    row = {
        "reward/mean": 0.55,
        "groups/live": 0.75,
        "groups/live_after/0_top_k_by_reward": 0.125,
        "advantage/std": 0.13,
    }
    heard = {}
    for step in range(12):
        drift = {"step": step, "kl/reference": 0.29 + 0.01 * (step % 3), "kl/behaviour": 0.30 - 0.01 * (step % 2)}
        heard |= {f.rule: (step, f, tell(f, doctor.run())) for f in doctor.observe(row | drift)}
    step, found, told = heard["wrong_reference"]
    assert (step, found.variant, found.certainty) == (9, "scoring", "certain")
    assert "policy.dropout_in_scoring" in told.prescription
    assert "policy.behaviour" in told.prescription
    step, found, _ = heard["starved_groups"]
    assert (step, found.variant) == (9, "filter")


def test_a_reference_of_other_weights_is_not_called_a_fault_of_scoring() -> None:
    doctor = LiveDoctor({}, every=5)
    heard = []
    for step in range(12):
        row = {"step": step, "reward/mean": 0.55, "kl/reference": 0.29, "kl/behaviour": 0.001}
        heard += [f for f in doctor.observe(row) if f.rule == "wrong_reference"]
    assert [f.variant for f in heard] == [""]
