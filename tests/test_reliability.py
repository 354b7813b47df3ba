"""docs/reliability.md names a test for every fault: those tests exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = (ROOT / "docs" / "reliability.md").read_text().split("\n## ")[0]
ROWS = [line for line in TABLE.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| fault"))]


def named(row: str) -> list[tuple[str, str]]:
    """(file, function or "") of each test a row names; `::name` alone goes with the file before it."""
    found, file = [], ""
    for path, name in re.findall(r"`([\w/]*(?:\.py)?)(?:::(\w+))?`", row.rsplit("|", 2)[1]):
        file = path or file
        found.append((file, name))
    return found


def test_every_fault_has_a_test_that_exists():
    assert len(ROWS) > 25
    for row in ROWS:
        tests = named(row)
        assert tests, row
        for file, name in tests:
            assert (ROOT / file).is_file(), row
            assert f"def {name}(" in (ROOT / file).read_text() or not name, (file, name)
