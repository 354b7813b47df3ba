"""How a model is told to others."""

from __future__ import annotations

from anygrpo.models import loading


def test_a_folder_is_told_from_the_root(tmp_path, monkeypatch):
    """An adapter's base is found wherever the adapter goes."""
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert loading.named("base") == str(tmp_path / "base")
    assert loading.named("owner/name@v1") == "owner/name"
