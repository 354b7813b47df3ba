"""What is written can be read again: by us, by TensorBoard, by a person."""

from __future__ import annotations

import importlib.util
import json
import math
import sys

import pytest
from runs import toml_of

from anygrpo.cli.main import main
from anygrpo.errors import ConfigError
from anygrpo.train import build
from anygrpo.train.folder import JsonlSink, cut_after, read_rows
from anygrpo.train.trackers import build_sink, run_id
from anygrpo.watch.progress import ProgressLine


def test_rows_come_back_with_nan_and_infinity(tmp_path):
    sink = JsonlSink(tmp_path / "m.jsonl")
    sink.write({"step": 0, "a": float("nan"), "b": float("inf"), "stage": "x"})
    sink.close()
    json.loads((tmp_path / "m.jsonl").read_text(), parse_constant=lambda word: pytest.fail(f"not JSON: {word}"))
    rows, broken = read_rows(tmp_path / "m.jsonl")
    assert broken == 0
    assert math.isnan(rows[0]["a"])
    assert rows[0]["b"] == math.inf


def test_a_cut_line_is_counted_not_fatal(tmp_path):
    (tmp_path / "m.jsonl").write_text('{"step": 0}\n{"step": 1}\n{"st')
    assert read_rows(tmp_path / "m.jsonl") == ([{"step": 0}, {"step": 1}], 1)
    assert cut_after(tmp_path / "m.jsonl", 0) == 1
    assert read_rows(tmp_path / "m.jsonl") == ([{"step": 0}], 0)


def test_tensorboard_files_hold_the_numbers(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    sink = build_sink("tensorboard", tmp_path, "p", "n", {})
    for step in range(3):
        sink.write({"step": step, "reward/mean": step / 2, "stage": "grpo"})
    sink.close()
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("reward/mean")] == [(0, 0.0), (1, 0.5), (2, 1.0)]


def test_a_missing_extra_names_the_pip_command(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "trackio", None)
    with pytest.raises(ConfigError, match=r"pip install 'anygrpo\[trackio\]'"):
        build_sink("trackio", tmp_path, "p", "n", {})


def test_the_progress_line_says_where_samples_are_invalid():
    line = ProgressLine(10)
    assert "invalid 25%" in line.text({"step": 1, "stage": "grpo", "invalid/share": 0.25})
    assert "invalid" not in line.text({"step": 1, "stage": "grpo", "invalid/share": 0.0})


def test_the_progress_line_is_what_a_person_needs():
    row = {"step": 4, "stage": "grpo", "reward/mean": 0.5, "reward/std_within": 0.25, "groups/live": 0.75,
           "kl/reference": 0.0123, "clip/low": 0.01, "clip/high": 0.0, "length/mean": 7.0, "time/step": 2.0,
           "eval/accuracy": 0.625}  # fmt: skip
    line = ProgressLine(10)
    text = line.text(row)
    assert "motion/judge 0.500" in line.text(row | {"eval/motion/judge": 0.5})
    for part in (
        "grpo 5/10",
        "reward 0.500±0.250",
        "live groups 75%",
        "KL 0.0123",
        "clipped low 1.0% high 0.0%",
        "HELD-OUT accuracy 0.625",
    ):
        assert part in text


class FakeWandb:
    """Records what a tracker is told; W&B's own counter drops what goes back."""

    def __init__(self):
        self.made, self.rows, self.metrics = [], [], []

    def init(self, **settings):
        self.made.append(settings)
        return self

    def define_metric(self, name, **more):
        self.metrics.append((name, more))

    def log(self, row, step=None):
        assert step is None or step >= 0
        self.rows.append(row)

    finished = 0

    def finish(self):
        self.finished += 1


def test_wandb_keeps_the_row_before_the_first_step_and_steps_taken_again(tmp_path, monkeypatch):
    fake = FakeWandb()
    monkeypatch.setitem(__import__("sys").modules, "wandb", fake)
    sink = build_sink("wandb", tmp_path, "p", "n", {})
    for step in (-1, 0, 1, 0):
        sink.write({"step": step, "eval/reward": 0.5, "stage": "x"})
    sink.close()
    assert [row["step"] for row in fake.rows] == [-1, 0, 1, 0]
    assert fake.rows[0]["eval/reward"] == 0.5
    assert ("*", {"step_metric": "step"}) in fake.metrics


def test_run_ids_do_not_collide_and_last(tmp_path, monkeypatch):
    fake = FakeWandb()
    monkeypatch.setitem(__import__("sys").modules, "wandb", fake)
    folders = [tmp_path / machine / "runs" / "toy-1" for machine in ("a", "b")]
    for folder in (*folders, folders[0]):
        folder.mkdir(parents=True, exist_ok=True)
        build_sink("wandb", folder, "p", "n", {})
    first, second, again = (made["id"] for made in fake.made)
    assert first != second
    assert first == again
    assert first.startswith("toy-1-")


def test_what_wandb_is_told(tmp_path, monkeypatch):
    fake = FakeWandb()
    monkeypatch.setitem(__import__("sys").modules, "wandb", fake)
    sink = build_sink("wandb", tmp_path, "project", "name", {"a": 1})
    ((made,), known) = fake.made, json.loads((tmp_path / "trackers.json").read_text())
    told = {"project": "project", "name": "name", "dir": str(tmp_path), "config": {"a": 1}, "resume": "allow"}
    assert made == told | {"id": known["wandb"]}
    assert fake.metrics == [("step", {}), ("*", {"step_metric": "step"})]
    sink.write({"step": 3, "a": 1.0, "b": True, "c": "text", "d": 2})
    assert fake.rows == [{"a": 1.0, "d": 2, "step": 3}]
    sink.close()
    assert fake.finished == 1


def test_what_trackio_is_told(tmp_path, monkeypatch):
    class Trackio(FakeWandb):
        def log(self, row, step=None):
            self.rows.append((row, step))

    fake = Trackio()
    monkeypatch.setitem(__import__("sys").modules, "trackio", fake)
    sink = build_sink("trackio", tmp_path, "project", "name", {"a": 1})
    known = json.loads((tmp_path / "trackers.json").read_text())
    assert fake.made == [{"project": "project", "name": known["trackio"], "config": {"a": 1}, "resume": "allow"}]
    sink.write({"step": -1, "a": 1.0, "b": False})
    assert fake.rows == [({"a": 1.0}, -1)]
    sink.close()
    assert fake.finished == 1


def test_an_id_is_of_the_folder_and_kept_for_each_tracker(tmp_path):
    folder = tmp_path / ("an odd name" + "x" * 100)
    folder.mkdir()
    first = run_id(folder, "wandb")
    word, _, token = first.rpartition("-")
    assert word == ("an-odd-name" + "x" * 100)[:80]
    assert len(token) == 8
    assert run_id(folder, "trackio") != first
    assert run_id(folder, "wandb") == first
    assert set(json.loads((folder / "trackers.json").read_text())) == {"wandb", "trackio"}
    for broken in ("[]", "{", '{"wandb": 3}'):
        (folder / "trackers.json").write_text(broken)
        again = run_id(folder, "wandb")
        assert again != first
        assert run_id(folder, "wandb") == again


def test_a_tracker_that_is_not_installed_is_told_by_a_dry_run_and_before_a_model_is_loaded(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.chdir(tmp_path)
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml", training={"steps": 1, "sinks": ["wandb"]})
    monkeypatch.setattr(build, "build_policy", lambda *given: pytest.fail("a policy is made"))
    for words in (["--dry-run"], ["--quiet"]):
        assert main(["train", str(recipe), *words]) == 2
        said = capsys.readouterr().err
        assert "sink 'wandb' needs a package that is not installed" in said
        assert "pip install 'anygrpo[wandb]', or leave it out of training.sinks" in said
    assert not (tmp_path / "run").exists()
