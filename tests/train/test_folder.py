"""The run folder: each file, as it is written and read."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from runs import table

from anygrpo.errors import ConfigError, TrainingError
from anygrpo.recipe.load import load_recipe, parse_recipe
from anygrpo.train import folder as module
from anygrpo.train.folder import (
    JsonlSink,
    RunFolder,
    cut_after,
    environment,
    next_folder,
    no_memory,
    read_rows,
    write_whole,
    writing,
)


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(tmp_path / "run", resume=False)
    yield made
    made.close()


def raised(error, path="/run", saved=lambda: ""):
    with pytest.raises(TrainingError) as caught, writing(Path(path), saved):
        raise error
    return caught.value


# --- errors


@pytest.mark.parametrize(
    ("code", "cure"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EROFS, "make it writable"),
        (errno.ENOENT, "somebody removed it"),
        (errno.EIO, "see to the disk"),
    ],
)
def test_a_disk_that_cannot_be_written_has_a_cure(code, cure):
    error = raised(OSError(code, os.strerror(code), "/run/metrics.jsonl"), saved=lambda: "saved: step 4")
    assert error.what == f"/run/metrics.jsonl cannot be written: {os.strerror(code)}; saved: step 4"
    assert error.cure.startswith(cure)
    assert raised(OSError(code, "x")).what == f"/run cannot be written: {os.strerror(code)}"


def test_errors_that_are_not_the_folders_pass():
    for error in (
        OSError(errno.ENOSPC, "x", "/elsewhere/a"),
        OSError(errno.EBADF, "x", "/run/a"),
        RuntimeError("shape"),
    ):
        with pytest.raises(type(error)) as caught, writing(Path("/run")):
            raise error
        assert caught.value is error
    with writing(Path("/run")):
        pass


def test_memory_that_ended_says_so_in_its_first_line():
    error = raised(RuntimeError(f"can't allocate memory: {'x' * 300}\nmore"), saved=lambda: "saved: step 4")
    assert error.what == f"out of memory: can't allocate memory: {'x' * 177}; saved: step 4"
    assert error.cure.startswith("smaller rows_per_block")
    assert raised(MemoryError()).what == "out of memory: MemoryError"


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (MemoryError(), True), (torch.OutOfMemoryError("x"), True), (RuntimeError("bad_alloc"), True),
        (RuntimeError("CUDA out of memory. Tried"), True), (OSError(12, "Cannot allocate memory"), True),
        (RuntimeError("not enough memory: you tried"), True), (RuntimeError("shapes differ"), False),
    ],
)  # fmt: skip
def test_the_end_of_memory_in_its_forms(error, known):
    assert no_memory(error) is known


# --- files


def test_a_small_file_is_whole_and_nothing_is_left(tmp_path, monkeypatch):
    flushed = []
    real = os.fsync
    monkeypatch.setattr(
        module.os, "fsync", lambda handle: flushed.append(os.fstat(handle).st_mode & 0o170000) or real(handle)
    )
    write_whole(tmp_path / "a.json", "ä\n")
    write_whole(tmp_path / "a.json", "ö")
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == "ö"
    assert os.listdir(tmp_path) == ["a.json"]
    assert flushed == [0o100000, 0o040000] * 2  # the file, then the folder
    handles = len(os.listdir("/proc/self/fd"))
    write_whole(tmp_path / "a.json", "ö")
    assert len(os.listdir("/proc/self/fd")) == handles


def test_a_folder_has_one_owner(folder):
    assert (folder.path / "samples").is_dir()
    with pytest.raises(ConfigError, match="another process is writing to"):
        RunFolder(folder.path, resume=True)
    folder.close()
    RunFolder(folder.path, resume=False).close()  # it holds no run yet
    folder.metrics.write_text("")
    with pytest.raises(ConfigError, match="already holds a run"):
        RunFolder(folder.path, resume=False)
    RunFolder(folder.path, resume=True).close()


def test_where_things_lie(folder):
    assert folder.checkpoints == folder.path / "checkpoints"
    assert folder.metrics == folder.path / "metrics.jsonl"
    assert folder.pictures == folder.path / "pictures"


def test_a_run_is_described_once(folder, monkeypatch):
    monkeypatch.setattr(module.sys, "argv", ["anygrpo", "train", "a b.toml"])
    folder.describe(parse_recipe(table()))
    folder.describe(parse_recipe(table(name="other")))
    assert (folder.path / "command.txt").read_text() == "anygrpo train 'a b.toml'\n" * 2
    assert load_recipe(folder.path / "config.toml").name == "toy"
    kept = json.loads((folder.path / "environment.json").read_text())
    assert kept["schema"] == module.SCHEMA == 2
    (folder.path / "environment.json").write_text("{}")
    folder.describe(parse_recipe(table()))
    assert (folder.path / "environment.json").read_text() == "{}"


def test_fingerprints_and_speed(folder):
    folder.keep_fingerprints({"data": "abc"})
    assert json.loads((folder.path / "fingerprints.json").read_text()) == {"schema": 2, "fingerprints": {"data": "abc"}}
    assert folder.speed() == {}
    folder.keep_speed({"rows": 4})
    assert json.loads((folder.path / "speed.json").read_text()) == {"schema": 2, "rows": 4}
    assert folder.speed() == {"rows": 4}
    for odd in ("{", "null", "[]", "[[1]]", '"x"', "1", "[" * 100_000):
        (folder.path / "speed.json").write_text(odd)
        assert folder.speed() == {}, odd[:9]


def test_samples_are_lines(folder):
    folder.write_samples(7, [{"prompt": "ä", "odd": Path("x")}, {"prompt": "b"}])
    text = (folder.path / "samples" / "step_00000007.jsonl").read_text(encoding="utf-8")
    assert text == '{"prompt": "ä", "odd": "x"}\n{"prompt": "b"}\n'
    folder.write_samples(7, [])
    assert (folder.path / "samples" / "step_00000007.jsonl").read_text() == ""


def test_lines_of_the_log_are_dated(folder, monkeypatch):
    monkeypatch.setattr(module.time, "strftime", lambda form: form)
    folder.log("ä")
    folder.log("b")
    assert (folder.path / "log.txt").read_text(encoding="utf-8") == "%Y-%m-%d %H:%M:%S ä\n%Y-%m-%d %H:%M:%S b\n"


def test_five_invalid_samples_a_step_are_logged_and_each_kind_said_once(folder, capsys):
    reasons = {(0, g): f"late: {g}" for g in range(4)} | {(1, 0): "cut: a", (1, 1): "cut: b", (1, 2): "odd"}
    folder.log_invalid(3, reasons)
    lines = [line.partition(" step ")[2] for line in (folder.path / "log.txt").read_text().splitlines()]
    assert lines == [f"3: sample {g} of prompt 0 is invalid: late: {g}" for g in range(4)] + [
        "3: sample 0 of prompt 1 is invalid: cut: a"
    ]
    said = capsys.readouterr().err.splitlines()
    assert said == [f"step 3: samples leave their groups, invalid: {why}" for why in ("late: 0", "cut: a", "odd")]
    folder.log_invalid(4, {(0, 0): "late: again"})
    assert capsys.readouterr().err == ""


def test_the_first_folder_that_is_free(tmp_path):
    assert next_folder(tmp_path, "a") == tmp_path / "a-1"
    (tmp_path / "a-1").mkdir()
    (tmp_path / "a-3").mkdir()
    assert next_folder(tmp_path, "a") == tmp_path / "a-2"
    (tmp_path / "a-2").mkdir()
    assert next_folder(tmp_path, "a") == tmp_path / "a-4"


def test_what_a_reader_needs_to_judge_the_numbers(monkeypatch):
    found = environment()
    assert found["schema"] == 2
    assert found["packages"]["torch"] == metadata.version("torch")  # torch.__version__ may have "+cu130" more
    assert "vllm" not in found["packages"] or found["packages"]["vllm"]
    assert found["cpus"] == os.cpu_count()
    assert found["python"].count(".") == 2
    monkeypatch.setattr(module.platform, "processor", lambda: "a processor")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert environment()["device"] == "a processor"
    monkeypatch.setattr(module.platform, "processor", lambda: "")
    monkeypatch.setattr(module.platform, "machine", lambda: "a machine")
    assert environment()["device"] == "a machine"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"device {number}")
    assert environment()["device"] == "device 0"

    def nothing(name):
        raise module.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(module.metadata, "version", nothing)
    assert environment()["packages"] == {}


def test_the_commit_that_ran(monkeypatch):
    asked = []

    def run(words, **settings):
        asked.append((words, settings["timeout"]))
        return SimpleNamespace(stdout="abc123\n") if len(asked) == 1 else SimpleNamespace(stdout="\n")

    monkeypatch.setattr(module.subprocess, "run", run)
    module._commit.cache_clear()
    assert module._commit() == module._commit() == "abc123"
    assert asked == [(["git", "rev-parse", "HEAD"], 5)]
    module._commit.cache_clear()
    assert module._commit() is None
    for error in (OSError(), subprocess.TimeoutExpired("git", 5)):
        monkeypatch.setattr(module.subprocess, "run", lambda *a, error=error, **k: (_ for _ in ()).throw(error))
        module._commit.cache_clear()
        assert module._commit() is None
    module._commit.cache_clear()


# --- rows


def test_rows_are_appended_as_standard_json(tmp_path):
    sink = JsonlSink(tmp_path / "m.jsonl")
    sink.write({"step": 0, "a": float("-inf"), "stage": "ä", "n": None})
    sink.write({"step": 1, "a": 0.5})
    text = (tmp_path / "m.jsonl").read_text(encoding="utf-8")
    assert text == '{"step": 0, "a": "-inf", "stage": "ä", "n": null}\n{"step": 1, "a": 0.5}\n'
    assert read_rows(tmp_path / "m.jsonl")[0][0]["a"] == float("-inf")


def test_lines_that_are_no_rows_are_counted(tmp_path):
    deep = "[" * 100_000
    lines = ['{"step": 0, "a": "inf"}', "", "  ", "[1]", "no", deep, '{"step": 1}', "3"]
    (tmp_path / "m.jsonl").write_bytes("\n".join(lines).encode() + b"\n\xff\xfe{\n")
    rows, broken = read_rows(tmp_path / "m.jsonl")
    assert rows == [{"step": 0, "a": float("inf")}, {"step": 1}]
    assert broken == 5


def test_rows_of_later_steps_go_and_a_writer_goes_on(tmp_path):
    file = tmp_path / "m.jsonl"
    assert cut_after(file, 3) == 0
    sink = JsonlSink(file)
    for step in range(5):
        sink.write({"step": step, "v": step * 10})
    assert cut_after(file, 2) == 2
    sink.write({"step": 9})
    assert [row["step"] for row in read_rows(file)[0]] == [0, 1, 2, 9]
    assert cut_after(file, 9) == 0
    assert os.listdir(tmp_path) == ["m.jsonl"]


@pytest.mark.parametrize("moment", ["fsync", "rename"])
def test_a_kill_or_a_full_disk_while_rows_are_cut_leaves_all_rows(tmp_path, monkeypatch, moment):
    file = tmp_path / "m.jsonl"
    for step in range(5):
        JsonlSink(file).write({"step": step, "v": float("nan")})
    before = file.read_bytes()

    def dies(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(*((module.os, "fsync", dies) if moment == "fsync" else (Path, "rename", dies)))
    with pytest.raises(OSError, match="full"):
        cut_after(file, 2)
    assert file.read_bytes() == before


def test_rows_without_a_step_stay_and_odd_ones_go(tmp_path):
    file = tmp_path / "m.jsonl"
    file.write_text('{"a": 1}\n{"step": "two"}\n{"step": 1}\n{"step": 0.5}\n')
    assert cut_after(file, 0) == 3
    assert read_rows(file) == ([{"a": 1}], 0)
    file.write_text('{"a": 1}\n{"st')
    assert cut_after(file, 0) == 0  # the broken line goes, though no row did
    assert file.read_text() == '{"a": 1}\n'
    file.write_text('{"a": 1}\n')
    assert cut_after(file, -1) == 1
