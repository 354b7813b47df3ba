"""Watching a log that grows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anygrpo.doctor.follow import follow
from anygrpo.doctor.synthetic import flat, healthy


def test_a_serious_finding_is_said_once_and_runs_the_command_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, out = tmp_path / "metrics.jsonl", tmp_path / "told"
    rows = healthy(60, completions__clipped_ratio=flat(0.7))
    shown = 0

    def grow(_: float) -> None:
        nonlocal shown
        shown += 12
        log.write_text("".join(json.dumps(row) + "\n" for row in rows[:shown]))

    command = f'printf "%s\\n" "$ANYGRPO_RULE" >> {out}'
    assert follow(str(log), {}, None, command=command, looks=6, sleep=grow) == 0
    assert out.read_text().split() == ["truncation"]
    assert capsys.readouterr().out.count("truncation") == 1


def test_a_healthy_log_is_followed_in_silence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "metrics.jsonl"

    def grow(_: float) -> None:
        log.write_text("".join(json.dumps(row) + "\n" for row in healthy(80)))

    follow(str(log), {}, None, looks=3, sleep=grow)
    assert capsys.readouterr().out == ""
