"""Rows of `select fit`, `inspect` and `evaluate` in the reader's language."""

from __future__ import annotations

import re

import pytest

from anygrpo.cli.main import main
from anygrpo.selection.spoken_rows import NAMES, in_column, row_name, short


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("policy - nearest (2 shots)", "策略 − 最近邻（2 个示例）"),
        ("policy - zero_shot", "策略 − 零示例"),
        ("4 shots - 2", "4 个示例 − 2 个"),
        ("coverage of the start", "起点的覆盖率"),
        ("unheard of", "unheard of"),
    ],
)
def test_a_row_is_named_in_both_languages(english, chinese, monkeypatch):
    monkeypatch.setenv("ANYGRPO_LANG", "en")
    assert row_name(english) == english
    monkeypatch.setenv("ANYGRPO_LANG", "zh")
    assert row_name(english) == chinese


def test_columns_count_chinese_characters_twice():
    assert in_column("ab", 4) == "ab  "
    assert in_column("策略", 6) == "策略  "


def test_a_comparison_is_its_verdict():
    assert short({"n": 2, "verdict": "unknown", "se": 0.1}) == "unknown"
    assert short({"a": 0.123456, "b": [1, 2]}) == "a: 0.1235  b: 1; 2"


def test_inspect_prints_no_english_row_in_chinese(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ANYGRPO_LANG", "zh")
    rows = {str(i): {"id_list": [[i + 1, i + 2, i], [i + 3, i + 1, i]], "score_list": [0.1, 0.9]} for i in range(4)}
    file = tmp_path / "c.json"
    file.write_text(__import__("json").dumps(rows))
    assert main(["select", "inspect", str(file)]) == 0
    named = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines() if line and line[0] not in "!没"]
    assert len(named) > 10
    assert all(re.search("[\u4e00-\u9fff]", name) for name in named), named
    assert set(named) <= {text.zh for text in NAMES.values()} | {name for name in named if len(name) > 24}
