"""The record of a run in its parts: what is looked at, what is said, by hand."""

from __future__ import annotations

import datetime
import json
from types import SimpleNamespace

import pytest
import torch
from runs import table
from stages import stage_of
from torch import nn
from toys import Bandit, BestArm

from anygrpo.core.digest import digest
from anygrpo.recipe.load import parse_recipe, plain_table
from anygrpo.recipe.section import Schedule
from anygrpo.train import record
from anygrpo.train.stages import PlannedStage, at

ENVIRONMENT = {"python": "3", "packages": {"torch": "2"}, "device": "d", "commit": "c"}


def recipe_of(**extra):
    return parse_recipe(table(**extra))


def stages_of(*tasks):
    return [PlannedStage(stage_of(), task, 0, 1) for task in tasks]


# --- fingerprints


def test_what_a_run_is_made_of(tmp_path):
    recipe = recipe_of(folder=str(tmp_path))
    policy, task = Bandit(3), BestArm(0, size=3)
    made = record.fingerprints(recipe, policy, stages_of(task, task))
    assert made["recipe"] == digest({k: v for k, v in plain_table(recipe).items() if k != "folder"})
    assert made["recipe"] == record.fingerprints(recipe_of(folder="/elsewhere"), policy, [])["recipe"]
    assert made["recipe"] != record.fingerprints(recipe_of(seed=4), policy, [])["recipe"]
    assert made["data"] == digest([[3, task.held_out()[:64], task.prompts(0, 3)]])  # one task for both stages
    assert made["data"] != record.fingerprints(recipe, policy, stages_of(task, BestArm(1)))["data"]
    weights = [[name, list(p.shape), p.reshape(-1).double()] for name, p in policy.net.state_dict().items()]
    assert made["model"] == digest(weights)
    assert set(made) == {"recipe", "data", "model", "file policy.function", "file task.function"}


def test_looking_draws_nothing(tmp_path):
    task = BestArm(0)
    task.held_out = lambda: [torch.randn(2)]
    torch.manual_seed(5)
    expected = torch.randn(1)
    torch.manual_seed(5)
    record.fingerprints(recipe_of(), Bandit(0), stages_of(task))
    torch.manual_seed(5)
    before = torch.get_rng_state()
    record.fingerprints(recipe_of(), SimpleNamespace(trainable=lambda: nn.Module(), identity=dict), stages_of(task))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(torch.randn(1), expected)


def test_what_cannot_be_looked_at_is_left_out():
    class Broken(BestArm):
        def held_out(self):
            raise RuntimeError("no")

    made = record.fingerprints(recipe_of(), Bandit(0), stages_of(Broken()))
    assert "data" not in made
    assert "model" in made
    policy = SimpleNamespace(trainable=lambda: None, identity=lambda: {"template": ["x"]})
    made = record.fingerprints(recipe_of(), policy, stages_of(BestArm()))
    assert "model" not in made
    assert made["template"] == digest(["x"])


def test_endless_and_long_tasks():
    class Long(BestArm):
        def prompts(self, step, count):
            return [(step, i) for i in range(count)]

        def held_out(self):
            return list(range(100))

    assert record._prompts(Long(size=0)) == [0, list(range(64)), []]
    assert record._prompts(Long(size=100)) == [100, list(range(64)), [(0, i) for i in range(64)]]
    assert record._prompts(Long(size=1)) == [1, list(range(64)), [(0, 0)]]
    assert record._prompts(SimpleNamespace(held_out=list)) == [0, [], []]


def test_numbers_taken_evenly_from_each_weight():
    module = nn.Module()
    module.w = nn.Parameter(torch.arange(1000.0).view(10, 100))
    module.meta = nn.Parameter(torch.zeros(3, device="meta"))
    some = torch.arange(0.0, 1000.0, 3)[:256].double()  # every third of 1000, 256 of them
    assert record._of_weights(module) == digest([["w", [10, 100], some]])


def test_files_that_the_recipe_names(tmp_path):
    data, code = tmp_path / "a.txt", tmp_path / "own.py"
    data.write_bytes(b"12345")
    code.write_bytes(b"x = 1")
    made = {
        "task": {"path": str(data), "reward": f"{code}:f", "list": [{"file": str(data)}], "none": f"{tmp_path}/gone"},
        "folder": str(data), "steps": 3, "long": "x" * 1000, "empty": "", "dir": str(tmp_path), "odd": "a.py:b",
    }  # fmt: skip
    assert dict(record._files(made)) == {
        "task.path": [5, b"12345"],
        "task.reward": [5, b"x = 1"],
        "task.list.0.file": [5, b"12345"],
    }


def test_of_a_long_file_its_beginning_and_size(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "_BYTES", 3)
    (tmp_path / "a.txt").write_bytes(b"12345")
    assert dict(record._files({"a": str(tmp_path / "a.txt")})) == {"a": [5, b"123"]}
    assert record._PROMPTS == 64
    assert record._NUMBERS == 256


def test_the_machine_is_versions_and_device():
    made = record.environment_digest(ENVIRONMENT)
    assert made == digest({k: ENVIRONMENT[k] for k in ("python", "packages", "device")})
    assert made == record.environment_digest(ENVIRONMENT | {"commit": "other"})
    assert made != record.environment_digest(ENVIRONMENT | {"device": "e"})


# --- what a resume says


def run_at(folder, recipe, step=4, total=10, begin=0, size=0, rate=None):
    stage = stage_of(optimizer={"learning_rate": 0.02 if rate is None else rate}, prompts_per_step=8)
    planned = PlannedStage(stage, BestArm(size=size), begin, total)
    logged = []
    return SimpleNamespace(
        folder=SimpleNamespace(path=folder, log=logged.append), recipe=recipe, step=step, total_steps=total,
        stages=[planned], stage_index=lambda step: 0, logged=logged,
    )  # fmt: skip


def test_all_that_changed_is_said_once_in_its_order(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(record.sys, "argv", ["anygrpo", "a b"])
    before, now = recipe_of(), recipe_of(seed=1, training={"steps": 12, "checkpoint_every": 4, "project": "p" * 100})
    run = run_at(tmp_path, now)
    kept = {"data": "a", "model": "b", "template": "c", "file task.path": "d", "own": "e", "recipe": "f", "gone": "g"}
    kept["environment"] = record.environment_digest(ENVIRONMENT)
    (tmp_path / "fingerprints.json").write_text(json.dumps({"fingerprints": kept}))
    prints = {"data": "x", "model": "x", "template": "x", "file task.path": "x", "own": "x", "recipe": "x", "new": "x"}
    said = record.resumed(run, before, prints, ENVIRONMENT | {"device": "other"})
    long = '"' + "p" * 76 + "..."
    assert said == [
        "seed: 0 -> 1",
        f'training.project: "anygrpo" -> {long}',
        "training.steps: 10 -> 12",
        "the prompts are others",
        "versions of packages, or the machine, are others",
        "the content of the file of task.path is another",
        "gone",
        "the model's start weights are others",
        "own",
        "the chat template is another",
    ]
    assert run.logged == [f"changed at step 4: {s}" for s in said]
    assert capsys.readouterr().err.splitlines() == [f"changed since the run was last started: {s}" for s in said]
    (line,) = record.resumes(tmp_path)
    assert line["step"] == 4
    assert line["command"] == "anygrpo 'a b'"
    assert line["changed"]["seed"] == [0, 1]
    assert line["said"] == said
    assert line["fingerprints"] == prints | {
        "environment": record.environment_digest(ENVIRONMENT | {"device": "other"})
    }
    assert record.resumed(run, now, prints, ENVIRONMENT | {"device": "other"}) == []  # nothing since


def test_values_are_shown_short():
    assert record._short(None) == "nothing"
    assert record._short("ä") == '"ä"'
    assert record._short("x" * 78) == '"' + "x" * 78 + '"'
    assert record._short("x" * 79) == '"' + "x" * 76 + "..."


def test_keys_that_came_and_went():
    stages = [{"name": "a", "steps": 1}]
    found = record.changed_settings(recipe_of(), recipe_of(stages=stages))
    assert found["stages.0.name"] == (None, "a")
    assert record.changed_settings(recipe_of(stages=stages), recipe_of())["stages.0.steps"] == (1, None)
    assert record.changed_settings(recipe_of(), recipe_of()) == {}


def test_the_last_fingerprints_that_can_be_read(tmp_path):
    assert record.last_fingerprints(tmp_path) == {}
    for text in ("{", "[]", '{"fingerprints": [1]}', "[" * 100_000):
        (tmp_path / "fingerprints.json").write_text(text)
        assert record.last_fingerprints(tmp_path) == {}
    (tmp_path / "fingerprints.json").write_text('{"fingerprints": {"a": "1"}}')
    assert record.last_fingerprints(tmp_path) == {"a": "1"}
    (tmp_path / "resumes.jsonl").write_bytes(b'{"step": 1}\nno\n{"fingerprints": {"a": "2"}}\n[]\n\xff\n{"cut')
    assert record.last_fingerprints(tmp_path) == {"a": "2"}
    assert len(record.resumes(tmp_path)) == 2


# --- the learning rate


def rate_said(before, now, **run):
    made = run_at(None, None, rate=now, **run)
    optimizer = {"learning_rate": before.pop("rate", 0.02)}
    extra = {"algorithm": {"prompts_per_step": before.pop("prompts", 8)}, "optimizer": optimizer}
    return [said.en for said in record._learning_rate(made, recipe_of(**extra, **before))]


LINE = {"kind": "linear", "start": 0.1, "end": 0.0}


def test_a_rate_that_is_another_is_announced():
    assert rate_said({"rate": 0.02}, 0.02) == []
    assert rate_said({"rate": 0.03}, 0.02) == ["the learning rate of step 4 is 0.02; it would have been 0.03"]
    assert rate_said({"rate": 0.03}, 0.02, step=10) == []  # no step is to come
    assert rate_said({"rate": LINE, "training": {"steps": 10}}, LINE) == []


def test_a_schedule_that_is_stretched_is_announced():
    line = Schedule(**LINE)
    was, is_now = at(line, 4, 20), at(line, 4, 10)
    assert rate_said({"rate": LINE, "training": {"steps": 20}}, LINE) == [
        f"the learning rate of step 4 is {is_now:.6g}; it would have been {was:.6g}"
    ]
    assert (
        rate_said({"rate": LINE, "training": {"steps": 8}}, LINE, begin=2, total=10) == []
    )  # of the stage's own steps
    assert rate_said({"rate": LINE, "training": {"steps": 10}}, LINE, begin=2, total=10) != []


@pytest.mark.parametrize(("size", "epochs", "prompts", "steps"), [(20, 4.0, 8, 10), (40, 2.0, 8, 10), (10, 1.0, 3, 4)])
def test_epochs_of_the_old_recipe_are_steps_of_its_own(size, epochs, prompts, steps):
    stages = [{"name": "a", "epochs": epochs}]
    assert rate_said({"rate": LINE, "stages": stages, "prompts": prompts}, LINE, total=steps, size=size, step=2) == []
    assert (
        rate_said({"rate": LINE, "stages": stages, "prompts": prompts}, LINE, total=steps + 1, size=size, step=2) != []
    )


def test_an_endless_tasks_epochs_are_one_step_at_least():
    stages = [{"name": "a", "epochs": 1.0}]
    assert rate_said({"rate": LINE, "stages": stages}, LINE, total=1, step=0) == []
    (said,) = rate_said({"rate": LINE, "stages": stages}, 0.02, total=3, step=1)  # two steps would still fall
    assert said.endswith("it would have been 0")


def test_stages_that_were_not_there_had_no_rate():
    made = run_at(None, None, rate=0.5)
    made.stage_index = lambda step: 1
    made.stages = made.stages * 2
    assert record._learning_rate(made, recipe_of()) == []
    made.stage_index = lambda step: 0
    assert len(record._learning_rate(made, recipe_of())) == 1


def test_a_value_is_told_in_eighty_letters_dates_too():
    assert record._short(None) == "nothing"
    assert record._short({"day": datetime.date(2026, 1, 2)}) == '{"day": "2026-01-02"}'
    assert record._short("x" * 90) == '"' + "x" * 76 + "..."
