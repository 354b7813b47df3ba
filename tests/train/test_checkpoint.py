"""A checkpoint folder alone: what is written, what is refused, what is never touched."""

import hashlib
import json
import os
import shutil

import pytest
import torch
from baits import bait, torch_bait
from safetensors import safe_open

from anygrpo.core import saved_parts
from anygrpo.core.saved import Form
from anygrpo.core.tensor_files import read_tensors
from anygrpo.errors import DataError
from anygrpo.train import checkpoint, places

WEIGHTS = {"w": torch.arange(4.0), "b": torch.tensor(2.0)}
STATE = {"step": 7, "updater": {"moments": {"w": {"exp_avg": torch.ones(4)}}, "refused": 1}, "anchor": WEIGHTS}


def made(folder, step=7, keep=9, **more):
    return checkpoint.save(folder, step, WEIGHTS, STATE | {"step": step}, keep=keep, best=False, **more)


def test_what_lies_in_it(tmp_path):
    folder = made(tmp_path)
    names = {f.name for f in folder.iterdir()}
    assert names == {"policy.safetensors", "optimizer.safetensors", "state.json", "state.safetensors", "manifest.json"}
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["schema"] == 2
    assert set(manifest["files"]) == names - {"manifest.json"}
    assert len(manifest["files"]["state.json"]["sha256"]) == 64
    weights, state = checkpoint.load(folder)
    assert torch.equal(weights["w"], WEIGHTS["w"])
    assert state["updater"]["refused"] == 1
    assert state["updater"]["moments"]["w"]["exp_avg"].tolist() == [1.0] * 4
    assert torch.equal(state["anchor"]["b"], torch.tensor(2.0))


@pytest.mark.parametrize(
    "text",
    ["null", "[]", "{}", "", "3", '"a"', '{"files": null}', '{"files": []}', '{"files": {}}',
     '{"schema": 2, "files": {"x',
     '{"files": {"state.json": null}}', '{"files": {"../../x": {"size": 1, "sha256": "a"}}}',
     "[" * 100_000,
     '{"files": {"/etc/hostname": {"size": 1, "sha256": "a"}}}', '{"files": {"\\u0000": {}}}', '{"a": 1}',
     '{"state.json": [10, 20]}'],
)  # fmt: skip
def test_a_malformed_manifest_falls_back_to_the_newest_sound_checkpoint(tmp_path, text):
    sound, last = made(tmp_path, 3), made(tmp_path, 7)
    (last / "manifest.json").write_text(text)
    assert checkpoint.newest(tmp_path) == sound
    with pytest.raises(DataError, match="damaged"):
        checkpoint.load(last)


@pytest.mark.parametrize("name", ["policy.safetensors", "optimizer.safetensors", "state.json", "state.safetensors"])
@pytest.mark.parametrize("how", ["cut", "gone", "bit", "folder"])
def test_any_damage_to_any_file_is_seen(tmp_path, name, how):
    sound, last = made(tmp_path, 3), made(tmp_path, 7)
    data = (last / name).read_bytes()
    (last / name).unlink()
    if how == "cut":
        (last / name).write_bytes(data[:-1])
    if how == "bit":
        (last / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    if how == "folder":
        (last / name).mkdir()
    assert checkpoint.newest(tmp_path) == sound
    assert name in checkpoint.problems(last)[0]


def resealed(folder):
    """The manifest made to agree with what lies there, as a stranger would."""
    (folder / "manifest.json").unlink()
    checkpoint._seal(folder)


@pytest.mark.parametrize("name", ["policy.safetensors", "optimizer.safetensors", "state.json", "state.safetensors"])
@pytest.mark.parametrize("kind", [bait, torch_bait])
def test_a_bait_in_any_file_is_not_run_though_the_manifest_agrees(tmp_path, name, kind):
    folder, mark = made(tmp_path / "c"), tmp_path / "ran"
    (folder / name).write_bytes(kind(mark))
    resealed(folder)
    assert not checkpoint.is_complete(folder)
    with pytest.raises(DataError):
        checkpoint.load(folder)
    assert not mark.exists()


def test_a_checkpoint_of_an_older_version_is_named(tmp_path):
    folder, mark = made(tmp_path / "c"), tmp_path / "ran"
    (folder / "state.json").unlink()
    (folder / "state.pt").write_bytes(torch_bait(mark))
    with pytest.raises(DataError, match="older version"):
        checkpoint.load(folder)
    assert not mark.exists()


ODD = [None, [], {"schema": 2}, {"schema": 2, "state": [1]}, {"schema": 9, "state": {}}, {"schema": 2, "names": [1]},
       {"schema": 2, "state": {"step": {"record": "Path"}}}, {"schema": 2, "state": {"updater": 1}}]  # fmt: skip


@pytest.mark.parametrize("state", ODD)
def test_a_state_that_cannot_be_meant_is_a_data_error(tmp_path, state):
    folder = made(tmp_path)
    (folder / "state.json").write_text(json.dumps(state))
    resealed(folder)
    with pytest.raises(DataError):
        checkpoint.load(folder)


def test_only_the_runs_own_folders_are_pruned(tmp_path):
    first = made(tmp_path, 1)
    own = [
        "step_00000001.bak",
        "step_best_by_hand",
        "step_000000001",
        "step_0000001",
        "step_00000001 ",
        "STEP_00000001",
    ]
    for name in own:
        shutil.copytree(first, tmp_path / name)
    (tmp_path / "step_00000099").write_text("a file")
    os.symlink(first, tmp_path / "step_00000098")
    for step in (2, 3, 4):
        made(tmp_path, step, keep=1)
    assert [p.name for p in checkpoint.complete(tmp_path)] == ["step_00000004"]
    checkpoint.drop_after(tmp_path, 3)
    assert {p.name for p in tmp_path.iterdir()} == {*own, "step_00000099", "step_00000098"}


def test_folders_are_flushed_after_the_rename(tmp_path, monkeypatch):
    seen = []
    flush, rename = checkpoint.flush, os.replace
    for module in (checkpoint, places):
        monkeypatch.setattr(module, "flush", lambda p: (seen.append(("flush", p.name)), flush(p)))
    monkeypatch.setattr(places.os, "replace", lambda a, b: (seen.append(("rename", b.name)), rename(a, b))[1])
    made(tmp_path / "c")
    at = seen.index(("rename", "step_00000007"))
    assert ("flush", "c") in seen[at:]
    assert {name for what, name in seen[:at] if what == "flush"} >= {
        "state.json",
        "manifest.json",
        "policy.safetensors",
    }


def test_the_best_is_whole_at_any_moment(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, 1, WEIGHTS, STATE, keep=1, best=True)
    assert checkpoint.is_complete(tmp_path / "best")
    checkpoint.save(tmp_path, 2, WEIGHTS, STATE | {"step": 2}, keep=1, best=True)
    assert checkpoint.step_of(tmp_path / "best") == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["best", "step_00000002"]


# --- names, forms, and what is said


def test_the_folder_is_named_by_its_step_and_is_the_only_trace(tmp_path):
    assert made(tmp_path, 7).name == "step_00000007"
    assert made(tmp_path, 123_456_789 % 10**8).name == "step_23456789"
    assert sorted(os.listdir(tmp_path)) == ["step_00000007", "step_23456789"]


def test_a_checkpoint_of_the_same_step_takes_the_olds_place(tmp_path):
    made(tmp_path)
    (tmp_path / "step_00000007" / "left.txt").write_text("x")
    assert not (made(tmp_path) / "left.txt").exists()


def test_weights_stand_under_the_librarys_names_and_come_back_by_the_policys(tmp_path):
    folder = made(tmp_path, names={"w": "unet.w"})
    state = json.loads((folder / "state.json").read_text())
    assert state["names"] == {"w": "unet.w"}  # of those alone that differ
    assert state["schema"] == 2
    assert "fixed" not in state
    assert set(read_tensors(folder / "policy.safetensors")) == {"unet.w", "b"}
    assert set(checkpoint.load(folder)[0]) == {"w", "b"}


def test_the_form_that_a_library_reads(tmp_path):
    form = Form("adapter.safetensors", {"alpha": "8"}, {"config.json": '{"ä": 1}'}, {"buffer": torch.ones(3)})
    folder = made(tmp_path, form=form)
    state = json.loads((folder / "state.json").read_text())
    assert (state["weights"], state["fixed"]) == ("adapter.safetensors", ["buffer"])
    assert (folder / "config.json").read_text(encoding="utf-8") == '{"ä": 1}'
    with safe_open(folder / "adapter.safetensors", "pt") as file:
        assert set(file.keys()) == {"w", "b", "buffer"}
        assert file.metadata()["alpha"] == "8"
    weights, _ = checkpoint.load(folder)
    assert set(weights) == {"w", "b"}
    assert not checkpoint.problems(folder)


def test_a_state_without_tensors_or_an_updater(tmp_path):
    folder = checkpoint.save(tmp_path, 3, WEIGHTS, {"step": 3, "updater": None, "a": [1, None]}, keep=1, best=False)
    assert sorted(f.name for f in folder.iterdir()) == ["manifest.json", "policy.safetensors", "state.json"]
    assert checkpoint.load(folder)[1] == {"step": 3, "updater": None, "a": [1, None]}
    plain = checkpoint.save(tmp_path, 4, WEIGHTS, {"step": 4, "updater": {"refused": 2}}, keep=1, best=False)
    assert not (plain / "optimizer.safetensors").exists()
    with pytest.raises(DataError):
        checkpoint.load(plain)  # an updater without moments cannot be gone on from


def test_moments_of_each_weight(tmp_path):
    moments = {"a/b": {"exp_avg": torch.ones(2), "step": torch.tensor(3.0)}, "c": {"exp_avg": torch.zeros(1)}, "d": {}}
    folder = checkpoint.save(tmp_path, 3, WEIGHTS, {"step": 3, "updater": {"moments": moments, "refused": 0}}, 1, False)
    found = checkpoint.load(folder)[1]["updater"]["moments"]
    assert {k: {n: x.tolist() for n, x in v.items()} for k, v in found.items()} == {
        "a/b": {"exp_avg": [1.0, 1.0], "step": 3.0},
        "c": {"exp_avg": [0.0]},
    }
    with safe_open(folder / "optimizer.safetensors", "pt") as file:
        assert all(map(str.isdigit, file.keys()))  # no library takes them for weights


def test_the_newest_few_stay(tmp_path):
    for step in (1, 2, 3, 4):
        made(tmp_path, step, keep=2)
    assert [p.name for p in checkpoint.complete(tmp_path)] == ["step_00000003", "step_00000004"]
    assert checkpoint.newest(tmp_path).name == "step_00000004"
    assert checkpoint.step_of(checkpoint.newest(tmp_path)) == 4


def test_the_best_is_a_copy_that_says_its_step(tmp_path):
    checkpoint.save(tmp_path, 3, WEIGHTS, {"step": 3}, keep=1, best=True)
    other = {"w": torch.zeros(4), "b": torch.zeros(())}
    checkpoint.save(tmp_path, 5, other, {"step": 5}, keep=1, best=False)
    best = tmp_path / "best"
    assert checkpoint.step_of(best) == 3
    assert torch.equal(checkpoint.load(best)[0]["w"], WEIGHTS["w"])
    checkpoint.save(tmp_path, 6, other, {"step": 6}, keep=1, best=True)
    assert checkpoint.step_of(best) == 6
    assert sorted(os.listdir(tmp_path)) == ["best", "step_00000006"]


def test_what_went_back_leaves_nothing_later(tmp_path):
    for step in (1, 2, 3):
        made(tmp_path, step)
    checkpoint.drop_after(tmp_path, 2)
    assert [checkpoint.step_of(p) for p in checkpoint.complete(tmp_path)] == [1, 2]


def test_folders_that_are_no_checkpoints_of_a_run(tmp_path):
    made(tmp_path, 3)
    for name in ("step_1", "step_000000099", "mine_00000001", "step_0000000x"):
        (tmp_path / name).mkdir()
    (tmp_path / "step_00000008").write_text("a file")
    (tmp_path / "step_00000009").symlink_to(tmp_path / "step_00000003")
    assert [p.name for p in checkpoint.complete(tmp_path)] == ["step_00000003"]


def said(folder):
    return checkpoint.problems(folder)


def test_each_damage_has_its_sentence(tmp_path):
    folder = made(tmp_path)
    assert said(folder) == []
    assert checkpoint.is_complete(folder)
    size = (folder / "policy.safetensors").stat().st_size
    (folder / "policy.safetensors").write_bytes(b"x" * (size - 1))
    (folder / "state.safetensors").unlink()
    text = bytearray((folder / "optimizer.safetensors").read_bytes())
    text[-1] ^= 1
    (folder / "optimizer.safetensors").write_bytes(bytes(text))
    assert said(folder) == [
        "optimizer.safetensors has other bytes than were written",
        f"policy.safetensors has {size - 1} bytes, {size} were written",
        "state.safetensors is missing",
    ]
    assert not checkpoint.is_complete(folder)
    with pytest.raises(DataError, match="is incomplete or damaged: optimizer"):
        checkpoint.load(folder)


def rewritten(folder, change):
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest["files"])
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return said(folder)


@pytest.mark.parametrize("name", ["state.json", "policy.safetensors", "optimizer.safetensors", "state.safetensors"])
def test_a_file_that_would_be_read_has_to_be_in_the_manifest(tmp_path, name):
    folder = made(tmp_path)
    assert rewritten(folder, lambda files: files.pop(name)) == [f"{name} is not in manifest.json"]


@pytest.mark.parametrize("name", ["state", "optimizer"])
def test_what_are_no_weights_bears_numbers(tmp_path, name):
    """A library that looks for weights by their names takes neither file for them."""
    with safe_open(made(tmp_path) / f"{name}.safetensors", "pt") as file:
        assert all(key.isdigit() for key in file.keys())  # noqa: SIM118


def test_a_rank_s_part_has_to_be_in_the_manifest_too(tmp_path):
    folder = made(tmp_path)
    part = folder / saved_parts.FOLDER / "rank_00000.safetensors"
    part.parent.mkdir()
    part.write_bytes((folder / "policy.safetensors").read_bytes())
    assert said(folder) == [f"{saved_parts.FOLDER}/rank_00000.safetensors is not in manifest.json"]


@pytest.mark.parametrize("taken", [False, True], ids=["its folder there", "its folder gone"])
def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch, taken):
    def full(path, *_):
        (path.parent / "begun").write_text("x")
        if taken:
            shutil.rmtree(path.parent)
        raise OSError("no space left on device")

    monkeypatch.setattr(checkpoint, "write_tensors", full)
    with pytest.raises(OSError, match="no space left on device"):
        made(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_of_the_best_is_no_hindrance(tmp_path):
    for name in (".best", ".best.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "begun.txt").write_text("x")
    checkpoint.save(tmp_path, 7, WEIGHTS, STATE, keep=9, best=True)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["best", "step_00000007"]
    assert not (tmp_path / "best" / "begun.txt").exists()


def test_a_checkpoint_without_weights_is_none(tmp_path):
    folder = made(tmp_path)
    (folder / "policy.safetensors").unlink()
    left = ["policy.safetensors is not in manifest.json"]
    assert rewritten(folder, lambda files: files.pop("policy.safetensors")) == left


def test_what_a_process_of_the_same_number_left_is_no_hindrance(tmp_path):
    left = tmp_path / f".step_00000007.{os.getpid()}"
    left.mkdir()
    (left / "old.txt").write_text("x")
    assert not (made(tmp_path) / "old.txt").exists()


def test_names_that_leave_the_folder_are_not_meant(tmp_path):
    folder = made(tmp_path)
    about = {"size": 1, "sha256": "a"}
    assert rewritten(folder, lambda files: files.update({"/etc/hostname": about, "a/../../b": about, "x": 3})) == [
        "/etc/hostname cannot be meant",
        "a/../../b cannot be meant",
        "x cannot be meant",
    ]
    (tmp_path / "real").write_text("x")
    (folder / "link").symlink_to(tmp_path / "real")
    assert "link is missing" in rewritten(folder, lambda files: files.update({"link": {"size": 1, "sha256": "a"}}))


def test_a_state_of_another_schema_and_a_file_that_is_no_tensors(tmp_path):
    folder = made(tmp_path)
    text = (folder / "state.json").read_text().replace('"schema": 2', '"schema": 9')
    (folder / "state.json").write_text(text)
    (folder / "policy.safetensors").write_bytes(b"none of that")
    digests = {n: {"size": (folder / n).stat().st_size, "sha256": hashlib.sha256((folder / n).read_bytes()).hexdigest()}
               for n in ("state.json", "policy.safetensors")}  # fmt: skip
    found = rewritten(folder, lambda files: files.update(digests))
    assert found[0].startswith("policy.safetensors cannot be read: ")
    assert found[1] == "state.json has schema 9; this version reads 2"


def test_an_older_versions_state_is_named_alone(tmp_path):
    folder = tmp_path / "step_00000001"
    folder.mkdir()
    (folder / "state.pt").write_bytes(b"")
    assert said(folder) == [
        "it is of an older version, whose state.pt is a pickle: weights can be read, the state cannot"
    ]


def test_all_that_was_written_reaches_the_disk(tmp_path, monkeypatch):
    flushed = []
    real = checkpoint.flush
    for module in (checkpoint, places):
        monkeypatch.setattr(module, "flush", lambda path: flushed.append(path.name) or real(path))
    checkpoint.save(tmp_path / "c", 7, WEIGHTS, STATE, keep=1, best=True)
    written = ["optimizer.safetensors", "policy.safetensors", "state.json", "state.safetensors", "manifest.json"]
    own = f".step_00000007.{os.getpid()}"
    assert flushed[:7] == [*written, own, "c"]
    assert set(flushed[7:]) == {*written, ".best", "c"}
    handles = len(os.listdir("/proc/self/fd"))
    real(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == handles
