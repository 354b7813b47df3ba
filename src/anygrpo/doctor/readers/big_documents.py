"""JSON documents too large to hold: every list of objects is read piece by piece, and the one of training taken."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from anygrpo.doctor.log import Log, flatten
from anygrpo.doctor.readers.source import Rows
from anygrpo.doctor.readers.training_rows import main_list

LIST = re.compile(r'"([^"\\]{0,200})"\s*:\s*\[\s*(?=\{)')
"""A list of objects under its name; quotes within texts are escaped and match nothing."""
TOP = re.compile(r"\s*\[\s*(?=\{)")
CHUNK = 1 << 20
TAIL = 512
"""Characters kept when nothing was found: a name may be cut in two."""
PIECE = 16 << 20
"""Characters of the largest object that is read."""
KEPT = 6
"""Lists held before the best of them is chosen."""


def read(path: Path, encoding: str, source: str) -> Log | None:
    """The rows of a document: its only list of objects, or of several the one of training, as of a small document.

    None where it has no list of objects.
    """
    lists: list[tuple[str, Rows]] = []
    for found in lists_of(path, encoding):
        lists.append(found)
        if len(lists) > KEPT:
            lists = [best(lists)]
    if not lists:
        return None
    name, rows = best(lists)
    return Log(source, "trl-state" if name == "log_history" else "json", rows, notes=rows.note)


def best(lists: list[tuple[str, Rows]]) -> tuple[str, Rows]:
    """The list that training is in, by the rule for small documents."""
    rows = main_list([(name, rows) for name, rows in lists])
    return next(found for found in lists if found[1] is rows)


def lists_of(path: Path, encoding: str) -> Iterator[tuple[str, Rows]]:
    """(name, rows) of each list of objects that is in no other; the name of the whole is ""."""
    with path.open(encoding=encoding, errors="replace") as handle:
        buffer = handle.read(CHUNK).lstrip("\ufeff")
        whole = TOP.match(buffer)
        name, at = ("", whole.end()) if whole else (None, 0)
        while True:
            if name is None:
                if (found := LIST.search(buffer, at)) is None:
                    if not (more := handle.read(CHUNK)):
                        return
                    buffer, at = buffer[max(at, len(buffer) - TAIL) :] + more, 0
                    continue
                name, at = found[1], found.end()
            rows = Rows()
            buffer, at = take(handle, buffer, at, rows)
            if rows:
                yield name, rows
            name = None


def take(handle: IO[str], buffer: str, at: int, rows: Rows) -> tuple[str, int]:
    """Append the objects of a list from `at` on; what is left of the text, and where."""
    decoder = json.JSONDecoder()
    while True:
        while at < len(buffer) and buffer[at] in " \t\r\n,":
            at += 1
        if buffer[at : at + 1] == "]":
            return buffer, at + 1
        try:
            item, at = decoder.raw_decode(buffer, at)
        except (ValueError, RecursionError):
            more = handle.read(CHUNK) if len(buffer) - at < PIECE else ""
            if not more:
                return buffer, at
            buffer, at = buffer[at:] + more, 0
            continue
        if row := flatten(item):
            rows.append(row)
