"""Any bytes in a checkpoint: read, or an error that says what to change; nothing run, no other exception."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
import torch

from anygrpo.errors import DataError
from anygrpo.train import checkpoint

STATE = {"step": 7, "updater": {"moments": {"w": {"exp_avg": torch.ones(4)}}, "refused": 1}, "anchor": None,
         "best": (0.5, 3, 0), "ahead": {"x": torch.ones(2, 3).t(), "rows": [1, None, "a"]}}  # fmt: skip
WORDS = [
    b"null",
    b"[]",
    b"{}",
    b'"',
    b"1e999",
    b"\x80\x04",
    b"..",
    b"/",
    b"record",
    b"tensor",
    b"-1",
    b"\0" * 8,
    b"}" * 50,
]


def spoilt(data: bytes, rng: random.Random) -> bytes:
    at, kind = rng.randrange(len(data) + 1), rng.randrange(5)
    if kind == 0:
        return data[:at]
    if kind == 1 and data:
        return data[: at - 1] + bytes([rng.randrange(256)]) + data[at:]
    if kind == 2:
        return data[:at] + rng.choice(WORDS) + data[at + rng.randrange(9) :]
    if kind == 3:
        return rng.randbytes(rng.randrange(200))
    return data[at:] + data[:at]


def fuzz(folder: Path, count: int) -> int:
    """How many of `count` spoilt checkpoints still loaded."""
    rng, loaded = random.Random(5), 0
    good = checkpoint.save(folder, 7, {"w": torch.arange(4.0)}, STATE, keep=1, best=False)
    for _ in range(count):
        bad = folder / "step_00000009"
        shutil.rmtree(bad, ignore_errors=True)
        shutil.copytree(good, bad)
        for _ in range(rng.randrange(1, 3)):
            file = rng.choice(sorted(bad.iterdir()))
            file.write_bytes(spoilt(file.read_bytes(), rng))
        if rng.random() < 0.7:  # a stranger's manifest agrees with what lies there
            (bad / "manifest.json").unlink()
            checkpoint._seal(bad)
        assert checkpoint.newest(folder) in (good, bad)
        try:
            weights, _ = checkpoint.load(bad)
            dict(weights)
            loaded += 1
        except DataError:
            pass
    return loaded


def test_any_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "flush", lambda path: None)  # no fault of power is meant here
    assert fuzz(tmp_path, 300) < 300


@pytest.mark.slow
def test_many_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "flush", lambda path: None)
    assert fuzz(tmp_path, 10_000) < 10_000
