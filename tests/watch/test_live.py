"""The doctor beside real runs: what it prints, writes and does, and what it costs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from anygrpo.doctor import Finding
from anygrpo.recipe.load import parse_recipe
from anygrpo.train import checkpoint
from anygrpo.train.build import new_run, resumed_run
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train
from anygrpo.watch.live import COST, LiveWatch, attach_doctor, finish

LETTERS = Path(__file__).parents[2] / "bench" / "faults" / "letters.py"


def recipe(folder, steps=12, doctor="watch", task=None, **tables):
    table = {
        "folder": str(folder),
        "policy": {"kind": "python", "function": f"{LETTERS}:build", "arguments": {"width": 16, "length": 4}},
        "task": {"kind": "python", "function": f"{LETTERS}:Letters", "arguments": task or {}},
        "algorithm": {"prompts_per_step": 8, "group_size": 4},
        "optimizer": {"learning_rate": 5e-3},
        "training": {"steps": steps, "threads": 1, "checkpoint_every": 4},
        "doctor": {"mode": doctor, "every": 5},
    }
    for key, value in tables.items():
        table[key] |= value
    return parse_recipe(table)


def trained(made) -> tuple[object, LiveWatch | None]:
    run = new_run(made)
    watch = attach_doctor(run)
    run.evaluate_start()
    try:
        train(run)
    finally:
        run.close()
        finish(run, watch)
    return run, watch


def test_a_finding_is_printed_once_and_both_files_are_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("anygrpo.watch.live.COST", 1.0)  # tiny steps: let it look whenever it wants to
    _, watch = trained(recipe(tmp_path / "r", steps=25, task={"reward": "constant"}))
    shown = capsys.readouterr().err
    printed = re.findall(r"\[(\w+), \w+\]", shown)
    assert printed
    assert len(printed) == len(set(printed))
    assert set(printed) <= watch.doctor.said.keys()
    written = json.loads((tmp_path / "r" / "doctor.json").read_text())
    assert written["actions"] == []
    assert written["verdict"] in ("serious", "warning")
    assert {"source", "format", "rows", "findings", "not_observable", "cost"} <= written.keys()
    assert watch.broken == ""
    assert "<html" in (tmp_path / "r" / "report.html").read_text()


def test_off_watches_nothing(tmp_path):
    _, watch = trained(recipe(tmp_path / "r", steps=3, doctor="off"))
    assert watch is None
    assert not (tmp_path / "r" / "doctor.json").exists()


def test_watching_changes_no_number_of_the_run(tmp_path):
    rows = {}
    for mode in ("off", "watch"):
        trained(recipe(tmp_path / mode, doctor=mode))
        rows[mode] = [
            (r["step"], r.get("reward/mean"), r.get("loss/total"))
            for r in read_rows(tmp_path / mode / "metrics.jsonl")[0]
        ]
    assert rows["off"] == rows["watch"]


def test_act_rolls_back_an_explosion_and_the_run_ends_sane(tmp_path, capsys):
    made = recipe(tmp_path / "r", doctor="act", algorithm={"epochs": 2}, optimizer={"learning_rate": 5.0})
    run, watch = trained(made)
    first = watch.actor.actions[0]
    assert (first.kind, first.rule, first.checkpoint) == ("roll_back", "log_ratio_explosion", "step_00000000")
    assert run.step == 12
    rows = [r for r in read_rows(tmp_path / "r" / "metrics.jsonl")[0] if r["step"] >= 0]
    assert [r["step"] for r in rows] == list(range(12))  # the abandoned steps are gone, the repeated ones are there
    assert rows[0]["lr"] == pytest.approx(5.0 * 0.01)
    assert rows[0]["beta"] == 2.0
    log = (tmp_path / "r" / "log.txt").read_text()
    assert "doctor roll_back (log_ratio_explosion)" in log
    written = json.loads((tmp_path / "r" / "doctor.json").read_text())
    assert written["actions"][0]["before"]["learning_rate"] == 1.0
    assert len([a for a in written["actions"] if a["kind"] != "relax"]) <= made.doctor.max_actions


def test_rolling_back_restores_weights_and_removes_what_was_abandoned(tmp_path):
    made = recipe(tmp_path / "r", steps=10)
    run = new_run(made)
    weights, seen = {}, []

    def observer(row, run):
        seen.append(row["step"])
        weights.setdefault((len(seen), row["step"]), run.policy.network.head.bias.detach().clone())
        if len(seen) == 9:  # during step 8, with checkpoints of 4 and 8 there
            run.controls.learning_rate = 0.25
            run.roll_back_to(run.folder.checkpoints / "step_00000004")

    run.observers.append(observer)
    train(run)
    assert seen == [*range(9), *range(4, 10)]
    assert run.controls.learning_rate == 0.25  # the checkpoint's own 1.0 does not come back
    assert not torch.equal(weights[5, 4], weights[10, 4])  # step 4 again, at a quarter of the rate
    before = weights[4, 3]  # after step 3 = the checkpoint of step 4
    assert (weights[10, 4] - before).abs().max() < (weights[5, 4] - before).abs().max()
    assert [p.name for p in checkpoint.complete(run.folder.checkpoints)] == ["step_00000008", "step_00000010"]
    run.close()


def test_rows_after_a_resume_that_dropped_some_are_kept(tmp_path):
    made = recipe(tmp_path / "r", steps=6)
    run = new_run(made)
    run.observers.append(lambda row, run: run.stop("enough") if row["step"] == 5 else None)
    train(run)
    run.close()
    # as if the process had died during step 5: rows 4 and 5 are logged, the newest checkpoint is of step 4
    newest = checkpoint.newest(run.folder.checkpoints)
    assert newest.name == "step_00000006"
    shutil.rmtree(newest)
    again = resumed_run(tmp_path / "r")
    train(again)
    again.close()
    steps = [r["step"] for r in read_rows(tmp_path / "r" / "metrics.jsonl")[0] if r["step"] >= 0]
    assert steps == [0, 1, 2, 3, 4, 5]


def test_the_doctor_s_own_failure_never_ends_a_run(tmp_path, monkeypatch, capsys):
    def fail(self, row):
        raise KeyError("a bug of the doctor's")

    monkeypatch.setattr("anygrpo.doctor.LiveDoctor.observe", fail)
    run, watch = trained(recipe(tmp_path / "r", steps=4))
    assert run.step == 4
    assert "a bug of the doctor's" in watch.broken
    assert capsys.readouterr().err.count("is off from here on") == 1


def test_cost_stays_under_one_percent_of_a_step(tmp_path):
    """300 rows of a run whose steps take 2 s each: what the doctor itself needs."""
    run = new_run(recipe(tmp_path / "r"))
    watch = LiveWatch(run)
    names = ("reward/std_within", "loss/total", "grad_norm/total", "groups/live", "log_ratio/abs_max", "length/mean")
    rows = [
        {"step": i, "time/step": 2.0, "reward/mean": 0.1 + 0.001 * i, "kl/reference": 1e-4 * i}
        | dict.fromkeys(names, 0.4)
        for i in range(300)
    ]
    for row in rows:
        watch(row, run)
    run.close()
    assert watch.doctor.seen > 250  # it did look
    assert watch.seconds < COST * watch.step_seconds


def test_a_roll_back_aims_by_what_it_acts_on_alone(tmp_path, monkeypatch):
    """A finding about all rows, said in the row of an explosion, must not take the run back to its start; and what is
    still to be looked at of the abandoned steps is gone with them."""
    run = new_run(recipe(tmp_path / "r", doctor="act"))
    watch = LiveWatch(run)
    watch.actor.belief = None
    watch.doctor.rows = [{"step": s} for s in range(7)]
    watch._waiting = [{"step": 5}, {"step": 6}]
    went = []
    monkeypatch.setattr(watch.levers, "roll_back", lambda step: went.append(step) or "step_00000006")
    watch.levers.went_back_to = 6
    watch.actor._healthy_step = 5
    said = [
        Finding("dead_term", "certain", "warning", (1, 2, 3)),
        Finding("log_ratio_explosion", "likely", "serious", (7,)),
    ]
    watch._act({"step": 6, "log_ratio/abs_max": 90.0}, said, run)
    assert went == [5]
    assert [r["step"] for r in watch.doctor.rows] == [0, 1, 2, 3, 4, 5]
    assert watch._waiting == [{"step": 5}]
    run.close()
