"""Notebooks and pages: the tables and the text that a cell printed, as lines of console output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, cast

Json = dict[str, Any]


class Tables(HTMLParser):
    """The tables of a page as Markdown, and the text around them."""

    def __init__(self) -> None:
        super().__init__()
        self.out: list[str] = []
        self.cells: list[str] | None = None
        self.cell: list[str] | None = None
        self.rows = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.rows = 0
        elif tag == "tr":
            self.cells = []
        elif tag in ("td", "th"):
            self.cell = []

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self.cell is not None and self.cells is not None:
            self.cells.append(" ".join("".join(self.cell).split()).replace("|", "/"))
            self.cell = None
        elif tag == "tr" and self.cells:
            self.out.append("| " + " | ".join(self.cells) + " |")
            if not self.rows:
                self.out.append("|" + "---|" * len(self.cells))
            self.rows += 1
            self.cells = None
        elif tag == "table":
            self.out.append("")

    def handle_data(self, data: str) -> None:
        if self.cell is not None:
            self.cell.append(data)
        elif self.cells is None:
            self.out += [line for line in data.splitlines() if line.strip()]


def html_lines(text: str) -> list[str]:
    """Lines of a page."""
    parser = Tables()
    parser.feed(text)
    parser.close()
    return parser.out


def is_page(start: str) -> bool:
    """Whether a text begins as HTML and holds a table."""
    lower = start[:4096].lower()
    return lower.lstrip().startswith("<") and ("<table" in lower or "<html" in lower or "<!doctype html" in lower)


def notebook_lines(data: Json) -> Iterator[str]:
    """Lines that the cells of a notebook printed, in order; their tables as Markdown."""
    for cell in objects(data.get("cells")):
        for output in objects(cell.get("outputs")):
            found = next(iter(objects([output.get("data")])), Json())
            if page := joined(found.get("text/html")):
                yield from html_lines(page)
            else:
                yield from joined(output.get("text") or found.get("text/plain")).splitlines()
            yield from joined(output.get("traceback")).splitlines()


def objects(items: Any) -> list[Json]:
    """The objects of a list; a damaged notebook may hold anything."""
    return [cast(Json, x) for x in cast(list[Any], items) if isinstance(x, dict)] if isinstance(items, list) else []


def joined(text: Any) -> str:
    """Notebooks keep text as one string or as a list of them."""
    return "".join(str(x) for x in cast(list[Any], text)) if isinstance(text, list) else str(text or "")


def of_notebook(text: str) -> list[str] | None:
    """The lines of a notebook; None where the JSON is none."""
    if '"cells"' not in text or '"nbformat"' not in text:
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return list(notebook_lines(cast(Json, data))) if isinstance(data, dict) else None
