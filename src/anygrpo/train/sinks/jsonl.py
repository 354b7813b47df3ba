"""metrics.jsonl: one JSON object a line, always written."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any


class JsonlSink:
    """Appends rows; NaN and infinity are written as strings, so every line is standard JSON.

    The file is opened for each row: a resumed or rolled-back run cuts it in between.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, row: dict[str, Any]) -> None:
        clean = {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(clean, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Nothing stays open."""


def read_rows(path: Path) -> tuple[list[dict[str, Any]], int]:
    """All readable rows, and how many lines were not JSON objects (a crash can cut the last one)."""
    rows: list[dict[str, Any]] = []
    broken = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            row = None
        if isinstance(row, dict):
            rows.append({k: float(v) if v in ("nan", "inf", "-inf") else v for k, v in row.items()})
        elif line.strip():
            broken += 1
    return rows, broken


def cut_after(path: Path, step: int) -> int:
    """Drop rows of later steps than `step` (they will be repeated by a resumed run); returns how many went."""
    if not path.is_file():
        return 0
    rows, broken = read_rows(path)
    kept = [row for row in rows if row.get("step", 0) <= step]
    if len(kept) < len(rows) or broken:
        fresh = path.with_suffix(".tmp")
        fresh.write_text("", encoding="utf-8")
        sink = JsonlSink(fresh)
        for row in kept:
            sink.write(row)
        sink.close()
        # in place: a sink that has the file open for appending goes on writing to this same file
        path.write_bytes(fresh.read_bytes())
        fresh.unlink()
    return len(rows) - len(kept)
