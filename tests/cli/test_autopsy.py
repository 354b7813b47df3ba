"""The command: the two public cases from flags and from a file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from anygrpo.cli import autopsy
from anygrpo.errors import ConfigError, DataError

MOTION = (
    "--mean-ratio 485165216 --policy-loss 171531792 --loss 171551552 --kl 197562.53 --beta 0.1 --mean-advantage 0 "
    "--std-reward .1766"
)


def call(text: str) -> int:
    parser = argparse.ArgumentParser()
    autopsy.add_parser(parser.add_subparsers())
    args = parser.parse_args(["autopsy", *text.split()])
    return args.run(args)


def test_motion(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert call(f"{MOTION} --json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["inferred"] == {"group_size": 2, "clamp": 20, "beta": 0.1, "live_groups": None}
    assert data["verdict"] == "serious"
    assert set(data) >= {"source", "format", "rows", "verdict", "findings", "not_observable", "inferred", "claims"}
    report = tmp_path / "a.html"
    assert call(f"{MOTION} --lang zh --html {report}") == 0
    assert "数值剖析" in capsys.readouterr().out
    assert "485165216" in report.read_text("utf-8")


def test_selection_from_a_file_keeps_the_printing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    path.write_text('{"advantage_std": 0.0063, "advantage_max": 0.0072, "normaliser": "z-score", "queries": 640}')
    assert call(f"{path} --json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["inferred"]["live_groups"] == 4
    assert data["inferred"]["group_size"] is None
    assert "4 to 4.06" in data["findings"][0]["evidence"]


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        call("--json")
    with pytest.raises(DataError):
        call(str(tmp_path / "none.json"))
    path = tmp_path / "list.json"
    path.write_text("[1, 2]")
    with pytest.raises(DataError):
        call(str(path))
