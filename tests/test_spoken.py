"""The language that a person reads, from --lang, ANYGRPO_LANG or the locale, down to errors, help and progress."""

from __future__ import annotations

import os

import pytest

from anygrpo.cli.main import main
from anygrpo.denoising.image.task import read_prompts
from anygrpo.errors import DataError
from anygrpo.language.tasks.data import read_rows
from anygrpo.models.loading import load_tokenizer
from anygrpo.models.matching import LoadReport
from anygrpo.recipe.training import DoctorConfig
from anygrpo.selection.demonstrations import read_examples
from anygrpo.selection.tables import read_table
from anygrpo.spoken import NOTHING, VARIABLE, Text, current, said, say, table
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
    assert "有训练日志" in capsys.readouterr().out
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
    assert "留出集 奖励 1.000" in said


def test_a_language_that_there_is_not(capsys):
    assert main(["--lang", "fr", "train"]) == 2
    assert "--lang fr" in capsys.readouterr().err


BASE = {"policy": '[policy]\nkind = "causal_lm"\nmodel = "smollm2"\n', "task": '[task]\nkind = "arithmetic"\n'}


@pytest.mark.parametrize(
    ("text", "flags", "chinese"),
    [
        ("[algorithm]\ngroup_size = 0\n", [], "algorithm.group_size：应"),
        ('[training]\nsteps = "many"\n', [], "training.steps = 'many' 不是数"),
        ("[training]\nsteps = 1.5\n", [], "training.steps：应为整数（现为 1.5）"),
        ("[optimizer]\nlearning_rate = -1\n", [], "optimizer.learning_rate：应不小于 0"),
        ("[algorithm]\nkl_low = 2.0\nkl_high = 1.0\n", [], "kl_low = 2.0 不小于 kl_high = 1.0"),
        ('[algorithm]\nobjective = "pppo"\n', [], "不在可选值中\n  -> 是否想写 'ppo'？"),
        ("[algorithm\n", [], "不是有效的 TOML"),
        ("", ["--algorithm.beta"], "--algorithm.beta 没有值"),
        ("", ["--policy.kind", "nothing"], "policy.kind = 'nothing' 不在可选值中"),
        ("", ["--task.kind", "images"], "缺少 task.path"),
        ("[[stages]]\nname = 'a'\nsteps = 1\nepochs = 1\n", [], "请只给出其中一个"),
    ],
)
def test_what_a_recipe_does_wrong_is_said_in_chinese(tmp_path, capsys, text, flags, chinese):
    (tmp_path / "r.toml").write_text("".join(BASE.values()) + text)
    assert main(["--lang", "zh", "train", str(tmp_path / "r.toml"), "--dry-run", *flags]) == 2
    assert chinese in capsys.readouterr().err


def test_other_errors_in_chinese(tmp_path, capsys):
    assert main(["--lang", "zh", "train", str(tmp_path / "none.toml")]) == 3
    assert "没有配方" in capsys.readouterr().err
    assert main(["--lang", "zh", "doctor", "x.jsonl", "--strange", "1"]) == 2
    assert "未知的参数" in capsys.readouterr().err
    (tmp_path / "p.py").write_text("def factory(seed=0):\n    return 3\n")
    (tmp_path / "r.toml").write_text(
        f'[policy]\nkind = "python"\nfunction = "{tmp_path}/p.py:factory"\n' + BASE["task"]
    )
    assert main(["--lang", "zh", "train", str(tmp_path / "r.toml"), "--folder", str(tmp_path / "run")]) == 2
    assert "不是 anygrpo.Policy 的子类，且缺少" in capsys.readouterr().err
    changed = ["--policy.function", f"{tmp_path}/p.py:factroy", "--folder", str(tmp_path / "run")]
    assert main(["--lang", "zh", "train", str(tmp_path / "r.toml"), *changed]) == 2
    assert "中没有 'factroy'；是否想写 'factory'？" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "chinese"),
    [
        ("train --resume none", "none 中没有可继续的运行记录"),
        ("doctor none", "none：没有这个文件或文件夹"),
        ("doctor log.jsonl --config none", "none：无法读取（没有这个文件）"),
        ("doctor --samples none", "none：没有这个文件或文件夹"),
        ("autopsy none", "none：无法读取（没有这个文件）"),
        ("select inspect none", "none 处没有存好的候选"),
        ("verify none", "none 中既没有运行记录也没有检查点"),
        ("report none", "none 中没有运行记录"),
        ("compare none other", "none 中没有运行记录：none：没有这个文件或文件夹"),
        ("compare log.jsonl", "compare 需要两次运行"),
        ("sweep r.toml --space none", "没有搜索空间文件 none"),
        ("adopt none.yaml", "none.yaml 无法读取"),
        ("adopt none.sh", "none.sh 无法读取"),
        ("explain strange", "不是选项、预设、奖励、指标"),
    ],
)
def test_what_is_missing_is_said_in_chinese(tmp_path, monkeypatch, capsys, words, chinese):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.jsonl").write_text('{"step": 1, "reward": 0.5}\n{"step": 2, "reward": 1}\n')
    (tmp_path / "r.toml").write_text("".join(BASE.values()))
    assert main(["--lang", "zh", *words.split()]) in (2, 3)
    told = capsys.readouterr().err.split("\n  -> ")
    assert chinese in told[0]
    assert words.startswith(("explain", "adopt")) or any(ord(c) > 0x3000 for c in told[1])


@pytest.mark.parametrize(
    ("words", "chinese"),
    [
        ("apply run x", "缺少参数：--out"),
        ("doctor x --config", "参数 --config 需要一个值"),
        ("compare a b --n many", "参数 --n 应为整数，而不是 'many'"),
        ("compare a b --a many", "参数 --a 应为数，而不是 'many'"),
        ("bench strange", "不能是 'strange'（可选："),
    ],
)
def test_arguments_that_a_command_lacks_are_refused_in_chinese(capsys, words, chinese):
    with pytest.raises(SystemExit, match="2"):
        main(["--lang", "zh", *words.split()])
    assert chinese in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["--lang", "en", *words.split()])
    assert "error: " in (told := capsys.readouterr().err)
    assert told.isascii()


def test_a_missing_data_file_is_said_in_chinese(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, "zh")
    for path, told in (("none.jsonl", "没有数据文件 none.jsonl，查找位置"), (str(tmp_path), "中没有数据：没有 ")):
        with pytest.raises(DataError, match=told):
            read_rows(path, "prompt")
    with pytest.raises(DataError, match="没有提示文件"):
        read_prompts("none.jsonl", "prompt")
    with pytest.raises(DataError, match="处没有特征"):
        read_table("none.npz")
    with pytest.raises(DataError, match="处没有示例"):
        read_examples(str(tmp_path / "none.jsonl"), ("a", "b"))
    with pytest.raises(DataError, match=r"中没有 config\.json"):
        load_tokenizer(str(tmp_path / "none"))


def test_texts_are_read_in_one_language_and_add():
    both = Text("a {n}", "甲 {n}") + Text("; b", "；乙")
    assert (both.said("en"), both.said("zh")) == ("a {n}; b", "甲 {n}；乙")
    assert table({"x": both}, "zh") == {"x": "甲 {n}；乙"}
    assert (said("plain"), said(NOTHING)) == ("plain", "")


def test_what_a_loaded_file_left_out_is_in_the_readers_language(monkeypatch):
    report = LoadReport(3, ["a.weight"], [], ["b: [2], [3]"], table="state_dict", prefixes={"'net.' -> ''": 3})
    assert str(report).startswith("3 tensors loaded; from its table 'state_dict'; prefix 'net.' -> '' (3); 1 missing")
    monkeypatch.setenv(VARIABLE, "zh")
    said = (
        "读入 3 个张量; 取自其中的表 'state_dict'; 前缀 'net.' -> '' (3); 1 缺少 (a.weight); 1 形状不同 (b: [2], [3])"
    )
    assert str(report) == said
