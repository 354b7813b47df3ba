"""An audit that looked nothing up is no clean one."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location("audit", Path(__file__).parents[2] / "scripts" / "audit.py")
audit = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(audit)

CLEAN = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1"}]}
SKIPPED = {"name": "c", "skip_reason": "not found"}


def test_the_three_verdicts():
    assert audit.verdict([CLEAN, SKIPPED]) == (
        0,
        ["1 of 2 looked up, 0 known vulnerabilities", "not looked up: c"],
    )
    assert audit.verdict([CLEAN, BAD])[0] == 1
    assert "b 2: CVE-1" in audit.verdict([BAD])[1]
    assert audit.verdict([SKIPPED, SKIPPED])[0] == 3
