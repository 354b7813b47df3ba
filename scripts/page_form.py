"""Words a sentence and rows a table of the pages that a person reads: `python scripts/page_form.py [PAGE ...]`.

tests/scripts/test_page_form.py holds the limits, so a page that grows out of its form fails there.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
WORDS = 20
"""A page's mean sentence is shorter than this."""
ROWS = 8
"""A table of a results page has this many rows at most; a longer one is a CSV under docs/data."""
_ITEM = re.compile(r"(?:[-*]|\d+\.) ")
_END = re.compile(r"(?<=[.!?])[)\"'*_`]* +(?=[\"'(*_`\[]*[A-Z0-9`])")
_SHORT = re.compile(r"\b(?:e\.g|i\.e|vs|cf|Dr|No|St)\.$")


class Form(NamedTuple):
    """What one page measures."""

    sentences: list[str]
    tables: list[list[str]]  # rows below the head

    @property
    def words(self) -> float:
        """Mean number of words a sentence; 0 without a sentence."""
        return sum(map(count, self.sentences)) / max(len(self.sentences), 1)

    @property
    def rows(self) -> int:
        """Rows of the longest table."""
        return max(map(len, self.tables), default=0)


def measure(text: str) -> Form:
    """Sentences and tables of a Markdown page; code blocks, headings, pictures and tables are no sentences."""
    paragraphs, tables = _parts(text)
    return Form([s for p in paragraphs for s in sentences(p) if count(s)], tables)


def _parts(text: str) -> tuple[list[str], list[list[str]]]:
    paragraphs: list[str] = []
    tables: list[list[str]] = []
    joined, fenced, in_table = False, False, False  # `joined`: the next line goes on with the last paragraph
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("```"):
            fenced, joined = not fenced, False
        elif bare.startswith("|") and not fenced:
            tables += [] if in_table else [[]]
            tables[-1].append(bare)
            joined = False
        elif fenced or not bare or bare.startswith(("#", "![")) or (line.startswith("    ") and not joined):
            joined = False
        elif joined and not _ITEM.match(bare):
            paragraphs[-1] += " " + bare
        else:
            paragraphs.append(_ITEM.sub("", bare, count=1))
            joined = True
        in_table = bare.startswith("|") and not fenced
    return paragraphs, [rows[2:] for rows in tables]


def sentences(paragraph: str) -> list[str]:
    """A paragraph cut where a sentence ends: a stop before a capital, a figure or code; links give their words."""
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
    found: list[str] = []
    for part in _END.split(plain):
        if found and _SHORT.search(found[-1]):
            found[-1] += " " + part
        else:
            found.append(part)
    return found


def count(sentence: str) -> int:
    """Words and figures; each end of an interval is one, as it is read."""
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def pages() -> list[Path]:
    """README, the guides and the results, in English."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/results").glob("*.md"))]


def main(names: list[str]) -> None:
    for page in [Path(name) for name in names] or pages():
        form = measure(page.read_text(encoding="utf-8"))
        longest = max(form.sentences, key=count, default="")
        print(f"{page}: {form.words:.1f} words a sentence ({len(form.sentences)}), rows {form.rows}; {longest[:70]}")


if __name__ == "__main__":
    main(sys.argv[1:])
