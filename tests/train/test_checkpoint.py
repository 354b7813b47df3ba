"""A checkpoint folder alone: what is written, what is refused, what is never touched."""

import json
import os
import shutil

import pytest
import torch
from baits import bait, torch_bait

from anygrpo.errors import DataError
from anygrpo.train import checkpoint

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
    flush, rename = checkpoint.flush, type(tmp_path).rename
    monkeypatch.setattr(checkpoint, "flush", lambda p: (seen.append(("flush", p.name)), flush(p)))
    monkeypatch.setattr(type(tmp_path), "rename", lambda a, b: (seen.append(("rename", b.name)), rename(a, b))[1])
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
