"""Nothing that a file holds reaches the terminal as a command to it."""

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import run_of, train

from anygrpo.cli.main import main
from anygrpo.cli.screen import Screen, harmless, screened
from anygrpo.errors import ConfigError

TITLE, CLIPBOARD, ASKED = "\x1b]0;pwned\x07", "\x1b]52;c;cHduZWQ=\x1b\\", "\x1b[6n"


@pytest.mark.parametrize(
    "text", [TITLE, CLIPBOARD, ASKED, "\x1bP+q544e\x1b\\", "\x1b[?1049h", "\x1bc", "\x9b", "\x08", "\x07"]
)
def test_what_steers_is_taken_out(text):
    assert harmless(f"a{text}b") == "ab"


@pytest.mark.parametrize("text", ["\x1b[31mred\x1b[0m", "\r50%\x1b[K", "\x1b[A\n", "\x1b[?25l", "a\tb\n", "中文"])
def test_what_tables_and_progress_bars_write_stays(text):
    assert harmless(text) == text


@given(st.text(st.sampled_from("\x1b[]P;0mnc\x07\\?a\x9b\x90 ")))
def test_no_sequence_is_left_or_made_by_taking_another_out(text):
    out = harmless(text)
    assert harmless(out) == out


def test_a_screen_is_the_stream_otherwise():
    stream = io.StringIO()
    screen = Screen(stream)
    screen.write(f"a{TITLE}b")
    screen.writelines(["c\n", ASKED])
    assert stream.getvalue() == "abc\n"
    assert not screen.isatty()
    before = sys.stdout
    with screened():
        assert sys.stdout is not before
    assert sys.stdout is before


def test_errors_hold_no_control_characters():
    error = ConfigError(f"key {TITLE} is\nnot known", f"write{ASKED}")
    assert "\x1b" not in str(error) + error.what + error.cure
    assert "is\nnot" in error.what


@pytest.fixture
def hostile(tmp_path):
    """A run whose names and texts are commands to a terminal."""
    run = run_of(tmp_path / "run", training={"steps": 2, "checkpoint_every": 1})
    train(run)
    run.close()
    folder = tmp_path / "run"
    bad = TITLE + ASKED
    (folder / "samples" / f"a{bad}.jsonl").write_text("{bad")
    (folder / "checkpoints" / f"b{bad}").mkdir()
    (folder / "config.toml").write_text((folder / "config.toml").read_text() + f"\n[wrong{json.dumps(bad)[1:-1]}]\n")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 2, f"reward/{bad}": 1.0, bad: bad}) + "\n")
    return folder


@pytest.mark.parametrize("words", [["verify"], ["doctor"], ["report"], ["evaluate"], ["apply", "x", "--out", "y"]])
def test_a_hostile_run_is_read_without_a_sequence(hostile, capsys, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main([words[0], str(hostile), *words[1:]])
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "\x07" not in said.out + said.err
