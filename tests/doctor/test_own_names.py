"""The names of our own metrics.jsonl mean themselves to the doctor, or nothing: none passes for another's number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anygrpo.doctor import canonical

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = sorted({name for file in GOLDEN.glob("*.json") for name in json.loads(file.read_text())["metrics"]})


def test_every_family_has_names_here() -> None:
    assert len(NAMES) > 100
    assert {"kept/reward/mean", "stored/reward/mean", "lambda/pg", "mismatch/truncated"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_ours_is_itself_or_nothing(name: str) -> None:
    found = canonical.concept(name)
    assert found is None or found[0] == name or (name, found[0]) == ("groups/live", "groups/dead")
