"""Tests of the doctor share small synthetic logs, and public ones where they lie beside the repository."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
LOGS = HERE.parents[2] / "shared" / "logs"


@pytest.fixture(scope="session")
def public_logs() -> Path:
    if not (LOGS / "expected.json").is_file():
        pytest.skip("the public logs are not beside the repository")
    return LOGS
