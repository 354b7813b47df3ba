"""Whatever the bytes: a result, or a DataError with a cure. Never a traceback."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anygrpo.doctor import diagnose, diagnose_log, read
from anygrpo.doctor.readers import wire
from anygrpo.doctor.render.as_json import as_json
from anygrpo.doctor.synthetic import healthy
from anygrpo.errors import DataError

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MANY = settings(QUICK, max_examples=10_000)

NAMES = st.sampled_from(
    [
        "reward",
        "reward_std",
        "kl",
        "loss",
        "grad_norm",
        "entropy",
        "learning_rate",
        "frac_reward_zero_std",
        "step",
        "completions/clipped_ratio",
        "completions/mean_length",
        "completions/max_length",
        "rewards/a/mean",
        "rewards/b_format/mean",
        "eval_accuracy",
        "advantage/std",
        "advantage/max",
        "ratio/mean",
        "log_ratio/abs_max",
        "clip_ratio/region_mean",
        "x",
    ]
)
NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True), st.integers(-5, 5), st.sampled_from([0.0, 1e-30, 1e300, -1e300])
)

TRACE = "Traceback (most recent call last):\n"
PIECES = st.sampled_from(
    [
        "{'loss': 0.1, 'reward': ", "}", "{", "'kl': nan", "step:1 - a:1.0 - reward:", " - ", TRACE, "ValueError: x\n",
        "\r", "\n", "\t", "Step\tTraining Loss\treward\n", "1\t2\t3\n", "reward=1e5, loss: ", "[0.1, 0.2]", "\x1b[31m",
        '{"step": 1, "reward": 1}', "=== Step 3/9 ===\n", "  • Loss: 1\n", "9" * 400, "1e999", "é\u0000", "np.float64(",
        "Killed\n",
    ]
)  # fmt: skip
HEADS = st.sampled_from([b"", b":W&B\xe1\xbe\x00", b"\x18\0\0\0\0\0\0\0\0\0\0\0brain.Event:2", b"{", b"\xff\xfe"])


def judged(path: Path) -> None:
    try:
        data = as_json(diagnose_log(read(path)))
    except DataError as error:
        data = error.cure
    assert json.dumps(data)


SUFFIXES = st.sampled_from(["a.log", "a.json", "a.jsonl", "a.csv"])


@pytest.mark.slow
@MANY
@given(st.lists(PIECES, max_size=25), SUFFIXES)
def test_many_pieces_of_logs(tmp_path: Path, pieces: list[str], name: str) -> None:
    check_pieces(tmp_path, pieces, name)


@QUICK
@given(st.lists(PIECES, max_size=25), SUFFIXES)
def test_pieces_of_logs(tmp_path: Path, pieces: list[str], name: str) -> None:
    check_pieces(tmp_path, pieces, name)


def check_pieces(tmp_path: Path, pieces: list[str], name: str) -> None:
    path = tmp_path / name
    path.write_text("".join(pieces), "utf-8")
    judged(path)


@pytest.mark.slow
@MANY
@given(st.binary(max_size=400), HEADS)
def test_many_bytes(tmp_path: Path, data: bytes, head: bytes) -> None:
    check_bytes(tmp_path, data, head)


@QUICK
@given(st.binary(max_size=400), HEADS)
def test_any_bytes(tmp_path: Path, data: bytes, head: bytes) -> None:
    check_bytes(tmp_path, data, head)


def check_bytes(tmp_path: Path, data: bytes, head: bytes) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(head + data)
    judged(path)
    assert all(len(f) == 3 for f in wire.fields(data))


@QUICK
@given(st.lists(st.dictionaries(NAMES, NUMBERS, max_size=8), max_size=40))
def test_any_rows(rows: list[dict[str, Any]]) -> None:
    json.dumps(as_json(diagnose(rows, format="jsonl"), "zh"))


@QUICK
@given(st.integers(1, 40), st.integers(0, 39), NAMES, NUMBERS)
def test_one_wild_number_in_a_sane_run(n: int, at: int, name: str, x: float) -> None:
    rows = healthy(n)
    rows[at % n][name] = float(x)
    found = diagnose(rows, format="jsonl")
    core = name in ("loss", "kl", "grad_norm", "entropy", "reward", "ratio/mean", "advantage/std")
    if core and not math.isfinite(x) and name in rows[0]:
        assert any(f.rule == "nonfinite" for f in found.findings)
