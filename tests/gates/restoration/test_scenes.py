"""Clean files of equal bytes: on one side of the split, told where the sets differ, and read no more than needed."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

import pytest

from anygrpo.errors import ConfigError
from anygrpo.gates.restoration.photographs import Picture, split
from anygrpo.gates.restoration.scenes import one_scene_each


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("anygrpo"), "propagate", True)
    return caplog


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are hashed."""
    names: list[str] = []
    real = hashlib.file_digest
    monkeypatch.setattr(
        hashlib, "file_digest", lambda file, kind: names.append(Path(file.name).name) or real(file, kind)
    )
    return names


def pictures(folder: Path, part, contents: str, scenes: str = "") -> list[Picture]:
    """One a letter of `contents`, which is its bytes; a scene each, or those of the letters of `scenes`."""
    folder.mkdir(exist_ok=True)
    made = []
    for i, (letter, scene) in enumerate(zip(contents, scenes or "0123456789")):
        file = folder / f"{folder.name}{i}.png"
        if not file.exists():
            file.write_text(letter)
        made.append(Picture(file.stem, file, (), (8, 8), f"{folder.name}:{scene}", part))
    return made


def sides(found: list[Picture]) -> list[set[str]]:
    return [{p.name for p in side} for side in split(found, 0.25, 0)]


def test_what_two_sets_train_on_is_not_told_as_tested_on(tmp_path: Path, warned: pytest.LogCaptureFixture) -> None:
    trained = pictures(tmp_path / "a", "train", "vwxy")
    free = pictures(tmp_path / "a", "split", "vwxy") + pictures(tmp_path / "b", "split", "v")
    train, test = split(one_scene_each(trained + free + pictures(tmp_path / "c", "test", "z")), 0.25, 0)
    assert (len(train), [p.name for p in test]) == (9, ["c0"])
    assert not warned.records


def test_a_free_picture_goes_where_a_set_with_a_side_has_it(tmp_path: Path, warned: pytest.LogCaptureFixture) -> None:
    trained, free = pictures(tmp_path / "a", "train", "vwxy"), pictures(tmp_path / "b", "split", "vwxyz")
    assert sides(one_scene_each(trained + free)) == [{"a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"}, {"b4"}]
    with pytest.raises(ConfigError, match="all 8 pictures are there to train on"):
        split(one_scene_each(free[:4] + trained), 0.25, 0)
    tested = pictures(tmp_path / "c", "test", "x")
    assert sides(one_scene_each(free + tested)) == [{"b0", "b1", "b3", "b4"}, {"b2", "c0"}]
    assert not warned.records


def test_its_scene_goes_with_it_and_scenes_that_share_a_picture_are_one(tmp_path: Path) -> None:
    clips = pictures(tmp_path / "b", "split", "pqqrst", "001123")  # clips 0 and 1 share q
    assert sides(one_scene_each(clips + pictures(tmp_path / "c", "test", "r"))) == [
        {"b4", "b5"},
        {"b0", "b1", "b2", "b3", "c0"},
    ]
    both = one_scene_each(clips + pictures(tmp_path / "a", "train", "p") + pictures(tmp_path / "c", "test", "r"))
    assert [p.part for p in both] == ["train", "test", "test", "test"] + ["split"] * 2 + ["train", "test"]


def test_a_picture_that_sets_train_on_and_test_on_is_told_by_both_names(
    tmp_path: Path, warned: pytest.LogCaptureFixture
) -> None:
    free, test = pictures(tmp_path / "b", "split", "vz"), pictures(tmp_path / "c", "test", "vwu")
    one_scene_each(free + test + pictures(tmp_path / "a", "train", "vwxy"))
    (line,) = [r.getMessage() for r in warned.records]
    assert line.startswith(("2 pictures", "2 张"))
    assert "a0.png" in line
    assert "c0.png" in line
    assert "b0.png" not in line


def test_one_folder_of_two_sets_is_not_read_and_other_files_once(tmp_path: Path, read: list[str]) -> None:
    one, again = pictures(tmp_path / "a", "split", "vwx"), pictures(tmp_path / "a", "split", "vwx")
    lone = Picture("long", tmp_path / "long.png", (), (8, 8), "long")
    lone.clean.write_text("longer")  # type: ignore[union-attr]
    (tmp_path / "a" / "a1.png").write_text("ww")
    (tmp_path / "a" / "a2.png").write_text("xxx")
    one_scene_each([*one, *again, lone])
    assert read == []
    other = pictures(tmp_path / "b", "split", "v")
    for _ in range(2):
        found = one_scene_each([*one, *again, lone, *other])
    assert sorted(read) == ["a0.png", "b0.png"]
    assert found[0].scene == found[3].scene == found[-1].scene
    (tmp_path / "b" / "b0.png").write_text("u")
    os.utime(tmp_path / "b" / "b0.png", ns=(1, 1))
    changed = one_scene_each([*one, *other])
    assert read[2:] == ["b0.png"]
    assert changed[0].scene != changed[-1].scene
