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


@pytest.fixture
def other(sick: str, tmp_path: Path) -> str:
    path = tmp_path / "other.jsonl"
    path.write_text(Path(sick).read_text().replace('"reward"', '"score"'))
    return str(path)


def test_a_column_that_is_not_there_is_named_with_the_nearest(sick: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"no column 'rewrd'[\s\S]*'reward'"):
        call(sick, "--json", "--map", "reward=rewrd")
    assert capsys.readouterr().out == ""


def test_a_column_of_one_of_several_logs_leaves_the_others_as_they_were(
    sick: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(sick, other, "--json", "--map", "reward=score") == 0
    assert [d["findings"][0]["rule"] for d in json.loads(capsys.readouterr().out)] == ["truncation"] * 2


def test_a_saved_map_needs_one_of_its_columns(sick: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "map.json"
    assert call(sick, "--json", "--save-map", str(saved)) == 0
    assert call(sick, "--json", "--map", str(saved)) == 0
    saved.write_text(json.dumps({"reward/mean": "goodness", "kl/reference": "distance"}))
    with pytest.raises(ConfigError, match="none of its columns"):
        call(sick, "--json", "--map", str(saved))


def test_one_map_of_several_logs_says_where_they_differ(sick: str, other: str, tmp_path: Path) -> None:
    saved = tmp_path / "map.json"
    with pytest.raises(ConfigError, match=r"reward/mean is 'reward' .* and 'score'"):
        call(sick, other, "--json", "--save-map", str(saved))
    assert not saved.exists()
    assert call(sick, sick, "--json", "--save-map", str(saved)) == 0
    assert json.loads(saved.read_text())["reward/mean"] == "reward"


def test_plan_writes_the_page_and_objects(sick: str, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    with pytest.raises(DoctorObjection):
        call(sick, "--plan", "--html", str(report), "--fail-on", "serious")
    assert report.read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["LOG", "--follow", "--json", "--html", "x.html"], "--follow makes no use of --json, --html"),
        (["LOG", "--follow", "--fail-on", "serious"], "--follow makes no use of --fail-on"),
        (["LOG", "LOG", "--follow"], "--follow watches one"),
        (["-", "--follow"], "--follow watches one"),
        (["LOG", "--samples", "here"], "--samples makes no use of PATH"),
        (["--samples", "here", "--plan"], "--samples makes no use of --plan"),
        (["LOG", "--rules"], "--rules makes no use of PATH"),
        (["LOG", "--confirm", "--map", "reward=reward"], "--confirm makes no use of --map"),
        (["LOG", "--suspect", "stale_rollouts", "--html", "x.html"], "--confirm makes no use of --html"),
        (["LOG", "--every", "3"], "--every without --follow"),
        (["LOG", "--every", "0"], "--every without --follow"),
        (["LOG", "--on-serious", "true"], "--on-serious without --follow"),
        (["LOG", "--budget", "3"], "--budget without --confirm"),
    ],
)
def test_a_flag_that_would_be_ignored_is_refused(sick: str, words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        call(*(sick if word == "LOG" else word for word in words))


def test_several_runs_in_one_file_are_not_followed_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("run,step,metric,value\n" + "\n".join(f"{r},{i},reward,0.{i}" for i in range(9) for r in "ab"))
    with pytest.raises(DataError, match="2 runs"):
        call(str(path), "--follow")


def test_a_map_of_a_followed_log_may_be_early(
    sick: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("anygrpo.doctor.follow.follow", lambda *args: 0)
    assert call(sick, "--follow", "--map", "reward=rewrd") == 0
    assert "no column 'rewrd'; did you mean 'reward'?" in capsys.readouterr().err
