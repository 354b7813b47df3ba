"""Pages that people read from the beginning stay readable: short sentences, performance.md on few lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDES = (
    "README.md", "CONTRIBUTING.md", "docs/adopt.md", "docs/check.md", "docs/compare.md", "docs/doctor.md",
    "docs/language.md", "docs/motion.md", "docs/performance.md", "docs/policies.md", "docs/restoration.md",
    "docs/rewards.md", "docs/scaling.md", "docs/selection.md", "docs/turns.md", "docs/use.md", "docs/results/llm.md",
    "docs/architecture.md", "docs/run-folder.md", "docs/reliability.md", "docs/lab-notes.md", "docs/pictures.md",
    "docs/results/motion.md", "docs/results/restoration.md", "docs/results/selection.md", "docs/results/faults.md",
)  # fmt: skip


def sentences(text: str) -> Iterator[str]:
    """Of running text and of lists: no headings, tables, pictures, code blocks; a link is its words."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        apart = not line.strip() or line.startswith(("|", "#", "    ", "<!--", "!"))
        if apart or re.match(r"\s*([-*]|\d+\.) ", line):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph))
            yield from re.split(r"(?<=[.!?:])\s+(?=[A-Z*`\[(0-9])", re.sub(r"`[^`]*`", "X", words))
            paragraph = []
        if not apart:
            paragraph.append(line.strip().lstrip("-* "))


def lengths(text: str) -> list[int]:
    return [n for n in (len(s.split()) for s in sentences(text)) if n > 2]


def test_sentences_are_counted():
    text = (
        "# Head line here\nOne two three. Four five `six seven` eight\nnine: ten.\n\n| a b c d |\n- [x y](z) and w.\n"
    )
    assert lengths(text) == [3, 6, 4]


@pytest.mark.parametrize("page", GUIDES)
def test_sentences_are_short(page):
    found = lengths((ROOT / page).read_text(encoding="utf-8"))
    assert sum(found) / len(found) <= 15


def test_performance_is_a_page_of_250_lines_at_most():
    assert len((ROOT / "docs/performance.md").read_text(encoding="utf-8").splitlines()) <= 250
