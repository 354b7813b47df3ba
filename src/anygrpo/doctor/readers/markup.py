"""XML of any names: elements that repeat are rows, their attributes and the numbers in them the columns."""

from __future__ import annotations

import xml.etree.ElementTree as Tree
from collections import Counter
from pathlib import Path

from anygrpo.doctor.log import Row, number
from anygrpo.doctor.readers import documents, proof

LARGEST = 64 << 20
"""Bytes of the largest document that is read."""


def is_xml(start: str) -> bool:
    return start.startswith("<?xml") and "<!ENTITY" not in start


def rows_of(path: Path) -> list[Row]:
    """Rows of the element that repeats and is proved to be one of training; empty where none is."""
    if path.stat().st_size > LARGEST:
        return []
    try:
        root = Tree.parse(path).getroot()
    except (Tree.ParseError, ValueError, RecursionError):
        return []
    counts = Counter(element.tag for element in root.iter())
    best: list[Row] = []
    for tag in (tag for tag, n in counts.items() if n >= proof.FEWEST):
        rows = [row for element in root.iter(tag) if (row := numbers_of(element))]
        rows = documents.merged(rows)
        if proof.proved(rows) and len(proof.measured(rows)) > len(proof.measured(best)):
            best = rows
    return best


def numbers_of(element: Tree.Element) -> Row:
    """Attributes and texts of an element and what is in it; {name: value} where it names its number."""
    pairs: dict[str, str] = {}
    for inner in element.iter():
        pairs |= inner.attrib
        if inner is not element and inner.text and inner.text.strip():
            pairs[inner.attrib.get("name", inner.tag)] = inner.text
        elif inner is element and inner.text and inner.text.strip():
            pairs.setdefault("value", inner.text)
    if named := documents.named(dict(pairs)):
        return named
    return {k: x for k, v in pairs.items() if (x := number(v.strip())) is not None}
