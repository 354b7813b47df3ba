"""What loading says at the start of a run."""

import logging

import pytest

from anygrpo.cli.train import said_while_opening


@pytest.mark.parametrize("quiet", [False, True])
def test_each_line_once_and_of_a_quiet_run_warnings_alone(capsys, quiet):
    log, before = logging.getLogger("anygrpo"), logging.getLogger("anygrpo").level
    with said_while_opening(quiet) as lines:
        for _ in range(2):
            log.info("starting from here")
            log.warning("3 weights had no place")
    assert lines == ["starting from here", "3 weights had no place"]
    shown = capsys.readouterr().err.splitlines()
    assert shown == (lines[1:] if quiet else lines)
    assert (log.level, log.handlers) == (before, [])


def test_other_processes_of_a_run_are_silent(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with said_while_opening(False) as lines:
        logging.getLogger("anygrpo").warning("x")
    assert (lines, capsys.readouterr().err) == ([], "")
