"""The command: options, exit codes, output."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from anygrpo.cli import doctor
from anygrpo.errors import ConfigError, DataError, DoctorObjection


def call(*words: str) -> int:
    parser = argparse.ArgumentParser()
    doctor.add_parser(parser.add_subparsers())
    args = parser.parse_args(["doctor", *words])
    return args.run(args)


@pytest.fixture
def sick(tmp_path: Path) -> str:
    path = tmp_path / "sick.jsonl"
    rows = [
        {"step": i, "reward": 0.4, "kl": 0.02, "completions/clipped_ratio": 0.8, "learning_rate": 1e-6}
        for i in range(30)
    ]
    path.write_text("\n".join(json.dumps(row | {"reward": 0.4 + 0.01 * (row["step"] % 3)}) for row in rows))
    return str(path)


def test_json(sick: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(sick, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["verdict"], data["findings"][0]["rule"]) == ("serious", "truncation")
    assert call(sick, sick, "--json", "--lang", "zh") == 0
    both = json.loads(capsys.readouterr().out)
    assert [d["findings"][0]["title"] for d in both] == ["回答被截断"] * 2


def test_terminal_and_page(sick: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.html"
    assert call(sick, "--html", str(report)) == 0
    out = capsys.readouterr().out
    assert "Answers are cut off" in out
    assert "Not observable" in out
    assert report.read_text("utf-8").startswith("<!doctype html>")


def test_fail_on(sick: str) -> None:
    with pytest.raises(DoctorObjection) as error:
        call(sick, "--json", "--fail-on", "serious")
    assert error.value.exit_code == 5
    assert "truncation" in str(error.value)


def test_config_names_the_value_to_put(sick: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "run.sh"
    config.write_text("python grpo.py --max_completion_length 300 --num_generations 8")
    call(sick, "--json", "--config", str(config))
    cure = json.loads(capsys.readouterr().out)["findings"][0]["prescription"]
    assert "Set `max_completion_length` to 600 (now 300)." in cure


def test_map(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.csv"
    path.write_text("step,goodness\n" + "\n".join(f"{i},{0.1 * i}" for i in range(20)))
    call(str(path), "--json")
    assert json.loads(capsys.readouterr().out)["findings"][0]["rule"] in ("not_rl_log", "crash")
    call(str(path), "--json", "--map", "reward=goodness")
    data = json.loads(capsys.readouterr().out)
    assert (data["rows"], data["verdict"]) == (20, "no_objection")


def test_usage_errors(sick: str, tmp_path: Path) -> None:
    for bad in ("reward", "=x", "rewrad=x"):
        with pytest.raises(ConfigError):
            call(sick, "--map", bad)
    with pytest.raises(DataError):
        call(str(tmp_path / "none.log"))
    with pytest.raises(ConfigError):
        call(sick, "--json", "--html", str(tmp_path / "no" / "where.html"))
