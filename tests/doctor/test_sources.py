"""Compressed, piped, oddly coded, damaged and very long logs."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import lzma
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from anygrpo.doctor import diagnose_log, read
from anygrpo.doctor.readers import wire
from anygrpo.doctor.readers.source import Rows
from anygrpo.doctor.synthetic import healthy
from anygrpo.errors import DataError

LINES = "".join(json.dumps(row) + "\n" for row in healthy(40))


@pytest.mark.parametrize(("pack", "end"), [(gzip.compress, ".gz"), (bz2.compress, ".bz2"), (lzma.compress, ".xz")])
def test_compressed_logs_are_what_they_hold(tmp_path: Path, pack, end: str) -> None:
    path = tmp_path / f"metrics.jsonl{end}"
    path.write_bytes(pack(LINES.encode()))
    log = read(path)
    assert (log.format, len(log.rows)) == ("jsonl", 40)


@pytest.mark.parametrize("data", [b"\x00" * 30, b"\x04\x58\x81"])
def test_zstd_that_is_none_or_cut_off_is_an_error_with_a_cure(tmp_path: Path, data: bytes) -> None:
    """Without the package it says what is missing; with it, that the file is damaged."""
    path = tmp_path / "metrics.jsonl.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + data)
    with pytest.raises(DataError) as error:
        read(path)
    assert error.value.cure


def test_zstd_is_what_it_holds(tmp_path: Path) -> None:
    library = pytest.importorskip("zstandard")
    path = tmp_path / "metrics.jsonl.zst"
    path.write_bytes(library.ZstdCompressor().compress(LINES.encode()))
    log = read(path)
    assert (log.format, len(log.rows)) == ("jsonl", 40)


def test_a_cut_gzip_file_is_an_error_with_a_cure(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(LINES.encode() * 50)[:-300])
    with pytest.raises(DataError, match="damaged"):
        read(path)


def test_a_pasted_fragment_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "'loss': 0.0, 'grad_norm': 0.0, 'reward': 0.5, 'reward_std': 0.0, 'frac_reward_zero_std': 1.0, 'kl': 0.0"

    class Piped:
        buffer = io.BytesIO(text.encode())

    monkeypatch.setattr(sys, "stdin", Piped())
    found = diagnose_log(read("-"))
    assert found.run.rows == 1
    assert found.first
    assert (found.first.rule, found.first.certainty) == ("constant_reward", "certain")


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "utf-8-sig"]
)
def test_every_width_of_unicode_with_and_without_a_mark(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES.encode(encoding))
    assert len(read(path).rows) == 40


def test_deep_json_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    with pytest.raises(DataError, match="not valid JSON"):
        read(path)


def test_crc32c_of_the_standard_example() -> None:
    """RFC 3720 B.4: 32 bytes of zeros have CRC-32C 8a9136aa; TFRecord masks it."""
    crc = 0x8A9136AA
    assert wire.masked_crc(bytes(32)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(payload: bytes) -> bytes:
    size = struct.pack("<Q", len(payload))
    crcs = (struct.pack("<I", wire.masked_crc(part)) for part in (size, payload))
    return size + next(crcs) + payload + next(crcs)


def test_records_after_a_damaged_one_are_found_again_and_the_loss_is_counted() -> None:
    parts = [framed(bytes([i]) * (20 + i)) for i in range(30)]
    whole = b"".join(parts)
    assert len(list(wire.tfrecords(whole))) == 30
    at = sum(map(len, parts[:10]))
    for hurt in (whole[:at] + b"\xff" * 9 + whole[at + 9 :], whole[: at + 14] + b"\x00" + whole[at + 15 :]):
        damage = wire.Damage()
        found = list(wire.tfrecords(hurt, damage))
        assert len(found) == 29
        assert damage.places == 1
        assert damage.bytes > 0
    damage = wire.Damage()
    assert len(list(wire.tfrecords(whole[: at + 5] + whole[at + 11 :], damage))) >= 28
    assert damage.places >= 1


def test_names_with_terminal_escapes_are_harmless(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(json.dumps({"step": i, "rew\x1b[2Jard": i, "\x1b]0;owned\x07kl": 0.1}) + "\n" for i in range(9))
    )
    log = read(path)
    assert all(c.isprintable() for row in log.rows for key in row for c in key)


def test_a_long_list_of_rows_is_thinned_and_keeps_what_is_rare() -> None:
    rows = Rows(cells=400)
    for i in range(5000):
        rows.append({"step": float(i), "loss": float("nan") if i == 1234 else 1.0})
    assert len(rows) * 2 <= 410
    assert rows[0]["step"] == 0
    assert rows[-1]["step"] == 4999
    assert any(row["loss"] != row["loss"] for row in rows)
    assert "one in 32 was kept" in rows.note[0]


BIG = r"""
import sys, time
from anygrpo.doctor import diagnose_log, read
began = time.process_time()
found = diagnose_log(read(sys.argv[1]))
peak = int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) / 1024  # ru_maxrss holds the parent's
print(found.run.rows, time.process_time() - began, peak)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jsonl", "csv", "console", "pairs", "json", "one-line"])
def test_200_megabytes_in_300_and_10_seconds(tmp_path: Path, kind: str) -> None:
    """Any kind of log: at most 300 MB of memory and 10 s of CPU."""
    names = [f"metric/number_{k}" for k in range(12)]
    path = tmp_path / f"a.{kind}"
    with path.open("w") as out:
        if kind == "csv":
            out.write(",".join(["step", "reward", "kl", *names]) + "\n")
        if kind == "json":
            out.write('{"log_history": [')
        i = 0
        while out.tell() < 200e6:
            row = {"step": i, "reward": 0.2 + 1e-7 * i, "kl": 0.01} | {
                name: 0.123456 * k for k, name in enumerate(names)
            }
            if kind in ("jsonl", "json"):
                out.write(("," if kind == "json" and i else "") + json.dumps(row) + ("\n" if kind == "jsonl" else ""))
            elif kind == "csv":
                out.write(",".join(map(str, row.values())) + "\n")
            elif kind == "pairs":
                out.write(f"[10:00:{i % 60:02}] INFO " + ", ".join(f"{k}: {x}" for k, x in row.items()) + "\n")
            elif kind == "console":
                out.write(str(row) + "\n" + "some text that a trainer printed, 12 words and a colon: yes\n" * 6)
            else:
                out.write("reward: 0.1, loss: 2.0, " * 1000)
            i += 1
        if kind == "json":
            out.write("]}")
    done = subprocess.run([sys.executable, "-c", BIG, str(path)], capture_output=True, text=True, check=True)
    _, seconds, megabytes = map(float, done.stdout.split())
    assert megabytes < 300
    assert seconds < 10


def test_rows_passed_over_leave_the_whole_run_and_its_last_row(tmp_path: Path) -> None:
    """A row that is passed over must not take the one before it along: the end of a long run was lost so."""
    path = tmp_path / "long.jsonl"
    path.write_text("".join(json.dumps({"step": i, "reward": i / 7, "loss": 0.5}) + "\n" for i in range(400_001)))
    steps = [row["step"] for row in read(path).rows]
    assert steps[0] == 0
    assert steps[-1] == 400_000
    gaps = [b - a for a, b in itertools.pairwise(steps)]
    assert set(gaps[:-1]) == {4.0}  # 1.2 million numbers: one row in four
    assert 0 < gaps[-1] <= 4


def test_lines_passed_over_by_their_shape_keep_what_is_odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of a long console log look alike; a number that is not finite, an evaluation, a crash do not."""
    monkeypatch.setattr("anygrpo.doctor.readers.source.Rows.__init__.__defaults__", (400,))
    said = [f"INFO step {i} | reward: {i / 7:.4f}, kl: {i / 9e6:.2e}, loss: -0.25" for i in range(5000)]
    said[3001] = "INFO step 3001 | reward: nan, kl: 1.0e-03, loss: -0.25"
    said[4003] = "INFO eval at step 4003 | reward: 0.9, kl: 1.0e-03"
    said += ["Traceback (most recent call last):", '  File "a.py", line 1', "ValueError: bad"]
    path = tmp_path / "a.log"
    path.write_text("\n".join(said) + "\n")
    log = read(path)
    steps = [row["step"] for row in log.rows]
    assert steps == sorted(steps)
    assert {0.0, 3001.0, 4003.0, 4999.0} <= set(steps)
    assert 60 < len(steps) < 160
    assert max(b - a for a, b in itertools.pairwise(steps)) <= 128
    assert log.ending is not None
    assert log.ending.text == "ValueError: bad"


def test_a_progress_bar_that_says_a_step_twice_loses_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anygrpo.doctor.readers.source.Rows.__init__.__defaults__", (400,))
    said = [f"step {i}: 10%| reward: {r / 10}, loss: 0.5, 3.1it/s" for i in range(1000) for r in (1, 2)]
    path = tmp_path / "a.log"
    path.write_text("\n".join(said) + "\n")
    rows = read(path).rows
    assert len(rows) > 60
    assert rows[-1]["step"] == 999
    assert rows[-1]["reward"] == 0.2


@pytest.mark.parametrize(("library", "end"), [(gzip, "gz"), (bz2, "bz2")])
def test_a_bomb_is_read_to_a_bound_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library, end) -> None:
    monkeypatch.setattr("anygrpo.doctor.readers.source.BOMB", 4 << 20)
    monkeypatch.setattr(gzip, "READ_BUFFER_SIZE", 8192, raising=False)  # 128 KiB since 3.12: much beside this bound
    path = tmp_path / f"a.jsonl.{end}"
    with library.open(path, "wb", 9) as file:
        file.write(LINES.encode())
        for _ in range(40):
            file.write(b'{"step": 1, "loss": 0.5}\n' * 40_000)
    log = read(path)
    assert log.rows[0]["step"] == healthy(1)[0]["step"]
    (note,) = [note for note in log.notes if "were read, not the rest" in note]
    assert int(note.split()[3]) in (4, 5)


def test_what_packs_well_but_no_more_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anygrpo.doctor.readers.source.BOMB", 1 << 20)
    monkeypatch.setattr(gzip, "READ_BUFFER_SIZE", 8192, raising=False)
    path = tmp_path / "a.jsonl.gz"
    rows = "".join(json.dumps({"step": i, "reward": 0.5, "loss": 0.0, "kl": 0.0}) + "\n" for i in range(60_000))
    path.write_bytes(gzip.compress(rows.encode()))
    log = read(path)
    assert log.rows[-1]["step"] == 59_999
    assert log.notes == []
