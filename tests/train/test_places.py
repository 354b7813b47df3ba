"""A folder in the place of another: killed at any moment, one of the two is there after `mend`."""

from __future__ import annotations

from pathlib import Path

import pytest

from anygrpo.train import places


class Killed(BaseException):
    pass


def folder(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "a").write_text(text)
    return path


@pytest.mark.parametrize(
    ("holder", "name", "left"),
    [(Path, "rename", "old"), (places.os, "replace", "old"), (places, "flush", "new")],
)
def test_killed_at_any_moment(holder, name, left, tmp_path, monkeypatch):
    target, fresh = folder(tmp_path / "step_00000004", "old"), folder(tmp_path / ".fresh", "new")

    def kill(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(holder, name, kill)
        with pytest.raises(Killed):
            places.put(fresh, target)
    places.mend(tmp_path)
    assert (target / "a").read_text() == left
    assert not list(tmp_path.glob("*.old"))


def test_undisturbed(tmp_path):
    target = tmp_path / "best"
    for text in ("1", "2", "3"):
        places.put(folder(tmp_path / ".fresh", text), target)
        assert [p.name for p in tmp_path.iterdir()] == ["best"]
        assert (target / "a").read_text() == text


def test_links_are_replaced_and_never_followed(tmp_path):
    elsewhere, home = folder(tmp_path / "elsewhere", "theirs"), tmp_path / "home"
    home.mkdir()
    (home / "best").symlink_to(elsewhere)
    places.put(folder(home / ".fresh", "new"), home / "best")
    assert not (home / "best").is_symlink()
    (home / ".step_00000001.old").symlink_to(elsewhere)
    places.mend(home)
    assert not (home / "step_00000001").exists()
    assert (elsewhere / "a").read_text() == "theirs"
