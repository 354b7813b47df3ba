"""The language that a person reads, from --lang, ANYGRPO_LANG or the locale, down to errors, help and progress."""

from __future__ import annotations

import os

import pytest

from anygrpo.cli.main import main
from anygrpo.recipe.training import DoctorConfig
from anygrpo.spoken import VARIABLE, current, say
from anygrpo.watch.progress import ProgressLine

NAMES = (VARIABLE, "LC_ALL", "LC_MESSAGES", "LANG")


@pytest.mark.parametrize(
    ("given", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_TW", "LC_ALL": "de_DE.UTF-8"}, "en"),
        ({"LC_MESSAGES": "zh_CN", "LANG": "C"}, "zh"),
        ({VARIABLE: "en", "LANG": "zh_CN"}, "en"),
        ({VARIABLE: "zh", "LC_ALL": "C"}, "zh"),
        ({VARIABLE: "fr", "LANG": "zh_CN"}, "zh"),
    ],
)
def test_what_is_set_first_decides(monkeypatch, given, language):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert current() == language
    assert say("yes", "是") == {"en": "yes", "zh": "是"}[language]
    assert DoctorConfig().language == language


@pytest.fixture
def recipe(tmp_path):
    text = (
        '[policy]\nkind = "causal_lm"\nmodel = "smollm2"\n[task]\nkind = "arithmetic"\n[algorithm]\nlearning_rate = 1\n'
    )
    (tmp_path / "r.toml").write_text(text)
    return str(tmp_path / "r.toml")


@pytest.mark.parametrize("words", [["--lang", "zh"], ["--lang=zh"]])
def test_an_error_in_chinese_and_the_process_as_it_was(recipe, capsys, words):
    before = os.environ.get(VARIABLE)
    assert main([*words, "train", recipe]) == 2
    assert "未知的键 'algorithm.learning_rate'\n  -> 它属于另一张表：optimizer.learning_rate" in capsys.readouterr().err
    assert main(["train", recipe, *words]) == 2
    assert "未知的键" in capsys.readouterr().err
    assert os.environ.get(VARIABLE) == before
    assert main(["train", recipe]) == 2
    assert "it belongs to another table" in capsys.readouterr().err


def test_help_and_progress(capsys, monkeypatch):
    assert main(["--lang", "zh"]) == 0
    assert "诊断任何训练日志" in capsys.readouterr().out
    row = {
        "step": 0,
        "stage": "grpo",
        "reward/mean": 0.5,
        "reward/std_within": 0.1,
        "groups/live": 0.5,
        "eval/reward": 1.0,
    }
    assert "reward 0.500±0.100" in ProgressLine(3).text(row)
    monkeypatch.setenv(VARIABLE, "zh")
    said = ProgressLine(3).text(row)
    assert "奖励 0.500±0.100" in said
    assert "有信号的组 50%" in said
    assert "留出集 reward 1.000" in said


def test_a_language_that_there_is_not(capsys):
    assert main(["--lang", "fr", "train"]) == 2
    assert "--lang fr" in capsys.readouterr().err
