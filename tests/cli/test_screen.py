"""Nothing that a file holds reaches the terminal as a command to it."""

import io
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import TOYS, run_of, toml_of, train

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


@pytest.mark.parametrize(
    "lost", ["reader", "disk", *(pytest.param(x, marks=pytest.mark.slow) for x in ("closed", "ascii"))]
)
def test_a_screen_that_is_lost_costs_no_step(tmp_path, lost):
    """`train | head -1` ended the run after a row, with 0; a full disk behind `> file` was an internal error."""
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml", training={"steps": 4})
    words = [sys.executable, "-m", "anygrpo", "train", str(recipe), "--lang", "zh" if lost == "ascii" else "en"]
    how = {"reader": "| head -1 > /dev/null", "disk": "> /dev/full", "closed": ">&- 2>&-", "ascii": "> out.txt"}[lost]
    env = os.environ | {"PYTHONPATH": str(TOYS.parent), "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    script = f'set -o pipefail; "$@" {how}'
    done = subprocess.run(["bash", "-c", script, "bash", *words], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 5


def test_only_where_work_would_be_lost():
    full = open("/dev/full", "w", buffering=1)  # noqa: SIM115
    screen = Screen(full)
    with pytest.raises(OSError, match="No space"):
        screen.write("a line\n")
    screen.goes_on = True
    screen.write("another\n")
    screen.flush()
    full.close()


def test_a_working_folder_that_is_gone_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "getcwd", lambda: (_ for _ in ()).throw(FileNotFoundError()))
    assert main(["doctor", "x"]) == 2
    assert "the working folder is gone" in capsys.readouterr().err
