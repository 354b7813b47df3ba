"""docs/algorithm.md names file:function for every detail: they exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "algorithm.md").read_text(encoding="utf-8")
DETAILS = re.findall(r"^(\d+)\. (.+?)(?=^\d+\. |^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
REFERENCE = re.compile(r"`([\w/]+\.py):(\w+)[`(]")
PLACES = ("src/anygrpo/algorithm", "src/anygrpo", ".")


def names(file: str) -> set[str]:
    """What a file defines at its top level."""
    path = next(ROOT / place / file for place in PLACES if (ROOT / place / file).is_file())
    text = path.read_text(encoding="utf-8")
    return set(re.findall(r"^(?:def|class) (\w+)", text, re.MULTILINE)) | set(
        re.findall(r"^(\w+)(?:: [^=\n]+)? = ", text, re.MULTILINE)
    )


def test_details_are_numbered_without_a_gap():
    assert [int(number) for number, _ in DETAILS] == list(range(1, len(DETAILS) + 1))
    assert len(DETAILS) >= 44


@pytest.mark.parametrize(("number", "text"), DETAILS)
def test_every_detail_names_a_function_that_exists(number: str, text: str):
    found = REFERENCE.findall(text)
    assert found, f"{number}. {text[:80]}"
    for file, name in found:
        assert name == "NAME" or name in names(file), f"{number}: {file}:{name}"


def test_every_table_of_choices_is_complete():
    """Names of advantages, objectives, reductions and filters as the page lists them are those of the code."""
    from anygrpo.algorithm import filters, normalisers, objectives, weights

    listed = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    for table in (normalisers.ADVANTAGES, objectives.OBJECTIVES, weights.REDUCTIONS, filters.FILTERS):
        assert set(table) <= listed, set(table) - listed
