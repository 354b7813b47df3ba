"""Forty public logs, read by people: the first finding as they saw it, and no warning on a sane run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anygrpo.doctor import diagnose_log, read

LOGS = Path(__file__).resolve().parents[3] / "shared" / "logs"
EXPECTED: dict[str, dict[str, Any]] = (
    json.loads((LOGS / "expected.json").read_text()) if (LOGS / "expected.json").is_file() else {}
)


@pytest.mark.parametrize("name", sorted(EXPECTED) or ["none"])
def test_public_log(name: str, public_logs: Path) -> None:
    found, expected = diagnose_log(read(public_logs / name)), EXPECTED[name]
    heavy = [f.rule for f in found.findings if f.severity != "info"]
    first = expected.get("first")
    if first == []:
        assert heavy == []
    elif first is not None:
        assert heavy
        assert heavy[0] in first
    assert set(expected.get("include", ())) <= {f.rule for f in found.findings}
    assert not set(expected.get("forbid", ())) & set(heavy)
