"""The bench of language recipes refuses what it can't run, before the model is unpacked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import gpu_language


@pytest.mark.parametrize(("part", "name"), [("recipes", "word_sorting"), ("adaptive", "aiw")])
def test_a_recipe_that_the_part_has_not_is_refused(monkeypatch, capsys, tmp_path, part, name):
    monkeypatch.setattr(gpu_language, "run_all", lambda *given: pytest.fail("began"))
    monkeypatch.setattr(sys, "argv", ["bench", str(tmp_path / "out"), "--part", part, "--only", name])
    with pytest.raises(SystemExit, match="2"):
        gpu_language.main()
    assert f"--only {name}: here `--part {part}` has" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
