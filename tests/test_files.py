"""Lines of JSON end with a newline alone, whoever reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anygrpo import files
from anygrpo.files import lines_of
from anygrpo.recipe import written

SAID = "one\u2028two\u0085three"


def test_a_newline_alone_ends_a_line():
    assert lines_of("a\nb\n") == ["a", "b"]
    assert lines_of("a\n\nb") == ["a", "", "b"]
    assert lines_of(f"{SAID}\n") == [SAID]
    assert lines_of("") == []


def judged(path):
    from anygrpo.selection.judged import read_rows

    return [row["text"] for row in read_rows(path).values()]


def compared(path):
    from anygrpo.probes.compare import _answers

    return [row["text"] for row in _answers(path).rows.values()]


def evaluated(path):
    from anygrpo.export.evaluating import _lines

    return [row["text"] for row in _lines(path)]


def swept(path):
    from anygrpo.sweep.results import _read

    return [row["text"] for row in _read(path)]


def logged(path):
    from anygrpo.train.folder import read_rows

    return [row["text"] for row in read_rows(path)[0]]


@pytest.mark.parametrize("read", [judged, compared, evaluated, swept, logged])
def test_a_text_may_hold_what_ends_lines_elsewhere(tmp_path, read):
    one = {"output": "x", "reward": 1.0, "components": {}, "valid": True}
    rows = [one | {"id": str(n), "prompt": n, "text": SAID} for n in range(2)]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (tmp_path / "step_00000001.jsonl").write_text(lines, encoding="utf-8")
    assert read(tmp_path / "step_00000001.jsonl") == [SAID, SAID]


def test_a_file_of_prompts_of_pictures_may_too(tmp_path):
    from anygrpo.denoising.image.task import read_prompts

    row = json.dumps({"prompt": SAID}, ensure_ascii=False)
    (tmp_path / "p.jsonl").write_text(row + "\n", encoding="utf-8")
    assert [p["prompt"] for p in read_prompts(str(tmp_path / "p.jsonl"), "prompt")] == [SAID]


def test_a_checkpoint_is_its_runs_from_wherever_it_is_named(tmp_path, monkeypatch):
    inside = tmp_path / "run" / "checkpoints" / "7"
    inside.mkdir(parents=True)
    (tmp_path / "run" / "config.toml").write_text("")
    monkeypatch.chdir(inside)
    for name in ("../7", ".", str(inside)):
        assert files.run_of(Path(name)) == tmp_path / "run"


def test_a_resumes_changes_are_read_whole_whatever_their_words_hold(tmp_path):
    changed = {"changed": {"policy.system": ["old", "a\u2028b\u0085c"]}}
    (tmp_path / written.RESUMES).write_text(json.dumps(changed, ensure_ascii=False) + "\n", encoding="utf-8")
    table = {"policy": {"system": "old"}}
    written.apply_changes(table, tmp_path)
    assert table == {"policy": {"system": "a\u2028b\u0085c"}}
