"""Sentences and tables are counted as a person reads them, and the pages keep to their form."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("page_form", ROOT / "scripts" / "page_form.py")
assert SPEC is not None
assert SPEC.loader is not None
form = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(form)

PAGE = """# A head is no sentence.

Two sentences here. The second one goes
over a line, e.g. Like this.

- An item with `code.py` and [a link. Of words](x.md)
- another: +0.34 dB [+0.19, +0.52]

| a | b |
|---|---|
| One. Two. | 3 |
| 4 | 5 |

    a block. Of code. Is none.

```bash
nor. This one.
```
"""


def test_sentences_and_words_of_a_page():
    found = form.measure(PAGE)
    assert [form.count(s) for s in found.sentences] == [3, 10, 7, 2, 5]
    assert found.words == pytest.approx(27 / 5)


def test_rows_below_the_head_are_counted():
    assert form.measure(PAGE).rows == 2
    assert form.measure("none").rows == 0


RESULTS = sorted((ROOT / "docs" / "results").glob("*.md"))
COMMAND = re.compile(
    r"^    (?:[A-Z_]+=\S+ |for \w+ in .*; do )*(?:[A-Z_]+=\"[^\"]*\" )?.*(?:anygrpo|python|bash) ", re.MULTILINE
)


def test_there_are_results():
    assert len(RESULTS) >= 5


@pytest.mark.parametrize("page", RESULTS, ids=lambda p: p.stem)
def test_a_results_page_keeps_its_form(page):
    """A longer grid belongs into a CSV under docs/data, a longer sentence into two."""
    found = form.measure(page.read_text(encoding="utf-8"))
    assert found.words < form.WORDS
    assert found.rows <= form.ROWS


@pytest.mark.parametrize("page", RESULTS, ids=lambda p: p.stem)
def test_each_claim_is_a_block_with_its_command_and_numbers(page):
    """A head that says it, sentences of its own, a table or a picture (nothing was measured: none), a command."""
    before, *blocks = page.read_text(encoding="utf-8").split("\n## ")
    assert "**Measures.**" in before, "what was rewarded and what was not"
    assert blocks
    for block in blocks:
        head, _, body = block.partition("\n")
        assert not re.match(r"\s*(?:\||!\[|    )", body), f"{head}: begins without a sentence"
        assert head.startswith("Not measured") or re.search(r"^(?:\||!\[)", body, re.MULTILINE), f"{head}: no numbers"
        assert COMMAND.search(body), f"{head}: no command"


@pytest.mark.parametrize("page", RESULTS, ids=lambda p: p.stem)
def test_what_a_page_points_to_is_there(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert target.startswith("http") or (page.parent / target).exists(), target


def test_every_grid_is_named_by_a_page_or_drawn():
    """A CSV that nothing points to is lost."""
    pages = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "docs").rglob("*.md"))
    drawn = {"smollm2_paired", "gains", "first", "full"}  # of docs/pictures, beside the page's own table
    lost = [p for p in (ROOT / "docs" / "data").rglob("*.csv") if p.name not in pages and p.stem not in drawn]
    assert lost == []


def test_the_page_of_speed_is_short():
    assert len((ROOT / "docs" / "performance.md").read_text(encoding="utf-8").splitlines()) <= 250
