"""The record of a run: what it is made of, and what a resume changed, is said and kept; config.toml stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from runs import cut_after, run_of, table, toml_of

from anygrpo.cli.main import main
from anygrpo.errors import DataError
from anygrpo.recipe.load import load_recipe
from anygrpo.train import record
from anygrpo.train.build import resumed_run
from anygrpo.train.loop import train

TASK = """
from toys import BestArm

class Task(BestArm):
    def held_out(self):
        return self.prompts({first}, 20)
"""


def stopped(folder: Path, **extra) -> Path:
    run = run_of(folder, **({"training": {"steps": 8, "checkpoint_every": 2}} | extra))
    cut_after(run, 4)
    return folder


def test_nothing_changed_and_nothing_is_said(tmp_path, capsys):
    folder = stopped(tmp_path / "run")
    resumed_run(folder).close()
    assert "changed" not in capsys.readouterr().err
    assert record.resumes(folder)[0]["said"] == []


def test_settings_that_changed_are_said_on_screen_and_in_the_log_and_last(tmp_path, capsys):
    folder = stopped(tmp_path / "run")
    before = (folder / "config.toml").read_bytes()
    resumed_run(folder, ["--optimizer.learning-rate", "0.005", "--training.steps", "9"]).close()
    text, err = (folder / "log.txt").read_text(), capsys.readouterr().err
    for part in ("optimizer.learning_rate: 0.02 -> 0.005", "training.steps: 8 -> 9",
                 "the learning rate of step 4 is 0.005; it would have been 0.02"):  # fmt: skip
        assert part in text
        assert part in err
    assert (folder / "config.toml").read_bytes() == before
    assert load_recipe(folder / "config.toml").training.steps == 9
    again = resumed_run(folder)  # the second resume goes on under what the first one changed
    assert again.total_steps == 9
    train(again)
    again.close()
    assert record.resumes(folder)[1]["said"] == []


def test_a_longer_run_stretches_its_schedule_and_the_rate_is_announced(tmp_path):
    schedule = {"kind": "linear", "start": 0.02, "end": 0.0}
    folder = stopped(tmp_path / "run", optimizer={"learning_rate": schedule})
    run = resumed_run(folder, ["--training.steps", "100"])
    run.close()
    said = [s for s in record.resumes(folder)[0]["said"] if "learning rate" in s]
    assert len(said) == 1
    assert "of step 4" in said[0]


def test_other_data_other_code_another_model_are_seen(tmp_path, monkeypatch):
    from runs import TOYS

    monkeypatch.syspath_prepend(str(TOYS.parent))
    file = tmp_path / "mine.py"
    file.write_text(TASK.format(first=10**6))
    folder = stopped(tmp_path / "run", task={"kind": "python", "function": f"{file}:Task"})
    file.write_text(TASK.format(first=10**6 + 1))
    resumed_run(folder, ["--seed", "1"]).close()
    said = record.resumes(folder)[0]["said"]
    assert "the prompts are others" in said
    assert "the model's start weights are others" in said  # of another seed
    assert any("task.function is another" in s for s in said)
    assert "seed: 0 -> 1" in said


def test_data_from_another_file(tmp_path, capsys):
    """A tokenizer-free policy on a file of prompts is not at hand: the file's own key is enough."""
    data = tmp_path / "a.txt"
    data.write_text("one")
    base = table(tmp_path / "run")
    base["policy"]["options"] = {}
    recipe_prints = dict(record._files({"task": {"path": str(data)}, "folder": str(data)}))
    assert list(recipe_prints) == ["task.path"]
    data.write_text("two")
    assert dict(record._files({"task": {"path": str(data)}})) != recipe_prints


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1, 2], [2, 1]), ("1", 1), ({"a": 1}, {"a": 2}), (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.ones(1, 2), torch.ones(2, 1)), ([[1], 2], [1, [2]]), (torch.tensor(True), torch.tensor(False)),
    ],
)  # fmt: skip
def test_different_things_have_different_digests(a, b):
    assert record.digest(a) != record.digest(b)
    assert record.digest(a) == record.digest(a)


def test_a_template_is_part_of_a_policys_identity(tmp_path):
    from types import SimpleNamespace

    run = run_of(tmp_path / "run")
    assert run.policy.identity() == {}
    run.policy.prompts = SimpleNamespace(tokenizer=SimpleNamespace(chat_template="{{ messages }}"))
    assert run.policy.identity() == {"template": ["{{ messages }}"]}
    run.close()


def test_a_record_that_does_not_fit_is_said(tmp_path):
    folder = stopped(tmp_path / "run")
    (folder / "resumes.jsonl").write_text('{"changed": {"seed.x": [0, 1]}}\n')
    with pytest.raises(DataError, match=r"resumes\.jsonl, line 1"):
        load_recipe(folder / "config.toml")
    (folder / "resumes.jsonl").write_text('{"changed": {"se')  # cut by a crash
    assert load_recipe(folder / "config.toml").seed == 0


def test_the_recipe_is_complete_or_absent(tmp_path, monkeypatch):
    import os

    from anygrpo.train import folder as module

    monkeypatch.setattr(module.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        run_of(tmp_path / "run")
    monkeypatch.undo()
    assert not (tmp_path / "run" / "config.toml").exists()
    assert os.fsync is not None


def test_the_command_line_says_it_too(tmp_path, capsys):
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml", training={"steps": 3})
    assert main(["train", str(recipe), "--quiet"]) == 0
    assert main(["train", "--resume", str(tmp_path / "run"), "--training.steps", "4", "--quiet"]) == 0
    assert "changed since the run was last started: training.steps: 3 -> 4" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "fingerprints.json").read_text())["fingerprints"]["data"]
