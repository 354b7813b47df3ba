"""Every number that a run logs is explained, in both languages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from runs import run_of

from anygrpo.metrics.__main__ import page
from anygrpo.metrics.catalogue import CATALOGUE, describe
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train


def test_everything_a_run_logs_is_in_the_catalogue(tmp_path):
    flags = ["--algorithm.beta", "0.1", "--algorithm.entropy-coef", "0.01", "--evaluation.every", "5"]
    run = run_of(tmp_path / "run", *flags, "--evaluation.pass-k", "4")
    train(run)
    rows, _ = read_rows(run.folder.metrics)
    logged = {key for row in rows for key in row} - {"step", "stage"}
    assert len(logged) > 40
    assert [name for name in sorted(logged) if describe(name) is None] == []


def test_entries_are_complete_and_ranges_are_ordered():
    for metric in CATALOGUE.values():
        assert metric.meaning.en, metric.name
        assert any("一" <= c <= "鿿" for c in metric.meaning.zh), metric.name
        assert metric.formula, metric.name
        assert metric.normal.en, metric.name
        assert metric.normal.zh, metric.name
        assert metric.act.en, metric.name
        assert metric.act.zh, metric.name
        assert metric.low is None or metric.high is None or metric.low <= metric.high


def test_a_family_explains_its_members():
    assert describe("reward/component/format").name == "reward/component/"
    assert describe("eval/pass_at_16").name == "eval/pass_at_"
    assert describe("nothing") is None


@pytest.mark.parametrize(("language", "file"), [("en", "metrics.md"), ("zh", "metrics.zh.md")])
def test_the_printed_page_is_up_to_date(language, file):
    printed = (Path(__file__).parents[2] / "docs" / file).read_text(encoding="utf-8")
    assert printed == page(language), f"python -m anygrpo.metrics {language} > docs/{file}"


def test_ranges_that_depend_on_the_number_of_dimensions_say_so():
    for name in ("ratio/max", "log_ratio/mean", "log_ratio/abs_max", "kl/behaviour", "kl/reference", "grad_norm/total"):
        assert re.search(r"\bD\b", CATALOGUE[name].normal.en), name
        assert re.search(r"D|维", CATALOGUE[name].normal.zh), name
