"""Sentences and tables are counted as a person reads them, and the pages keep to their form."""

from __future__ import annotations

import importlib.util
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


@pytest.mark.parametrize("page", [ROOT / "docs" / "results" / "restoration.md"], ids=lambda p: p.stem)
def test_a_results_page_keeps_its_form(page):
    """A longer grid belongs into a CSV under docs/data, a longer sentence into two."""
    found = form.measure(page.read_text(encoding="utf-8"))
    assert found.words < form.WORDS
    assert found.rows <= form.ROWS
