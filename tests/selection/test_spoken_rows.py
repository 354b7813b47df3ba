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


def test_values_are_in_the_readers_language_too(tmp_path, capsys, monkeypatch):
    """And the reward is the richest that the file allows: of beams alone their score."""
    monkeypatch.setenv("ANYGRPO_LANG", "zh")
    rows = {str(i): {"id_list": [[i + 1, i + 2, i], [i + 3, i + 1, i]], "score_list": [0.1, 0.9]} for i in range(4)}
    file = tmp_path / "c.json"
    file.write_text(__import__("json").dumps(rows))
    assert main(["select", "inspect", str(file)]) == 0
    out = capsys.readouterr().out
    assert "各候选自己的编号的并集" in out
    assert "最少: 2  平均: 2  最多: 2" in out
    assert re.search(r"奖励方式 \(reward_mode\) +info_score\n", out)
    assert "剩下的候选都没有" not in out
    assert short({"all": {"live_groups": 3}}) == "全部: (有信号的组: 3)"


def test_select_without_an_action_lists_them(capsys):
    with pytest.raises(SystemExit):
        main(["select"])
    said = capsys.readouterr().err
    assert "a file of scored selections -> a portable selector" in said
    assert "the following arguments are required: ACTION" in said
