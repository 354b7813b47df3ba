"""A cell of a grid is read as its number and its bar."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("plot_table", Path(__file__).parents[2] / "scripts" / "plot_table.py")
assert SPEC is not None
assert SPEC.loader is not None
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)


@pytest.mark.parametrize(
    ("cell", "middle", "below", "above"),
    [
        (".854", 0.854, 0, 0),
        (".854 (.002)", 0.854, 0.002, 0.002),
        (".605 +- .035", 0.605, 0.035, 0.035),
        ("+0.34 [+0.19, +0.52]", 0.34, 0.15, 0.18),
        ("-.004 [-.010, +.001]", -0.004, 0.006, 0.005),
        ("1.6e-6", 1.6e-6, 0, 0),
    ],
)
def test_a_cell(cell, middle, below, above):
    assert script.value(cell) == pytest.approx((middle, below, above))


@pytest.mark.parametrize("cell", ["", "cut off", ".703, .765, .672"])
def test_words_are_no_number(cell):
    assert script.value(cell) is None


def test_a_column_of_words_is_refused(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a,b\nx,word\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="no numbers"):
        script.draw(table, tmp_path / "o.png", [1])


def test_the_picture_is_written(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a,b\nx,+1 [+0, +2]\ny,-1\n", encoding="utf-8")
    script.draw(table, tmp_path / "o.png", [1])
    assert (tmp_path / "o.png").read_bytes().startswith(b"\x89PNG")


def test_lines_run_along_a_column(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("a,calls,b\nx,100,.5 +- .1\nx,1000,.6\ny,,.3\n", encoding="utf-8")
    script.lines(table, tmp_path / "o.png", [2], 1)
    assert (tmp_path / "o.png").read_bytes().startswith(b"\x89PNG")
    table.write_text("a,calls,b\nx,100,word\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="no numbers"):
        script.lines(table, tmp_path / "o.png", [2], 1)
