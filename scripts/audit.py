"""Known vulnerabilities of requirements.lock, by pip-audit; and how many of its lines could be looked up at all.

    python scripts/audit.py        exit code 0: none known; 1: some are; 3: not one line could be looked up

pip-audit by itself says "No known vulnerabilities found" where its database cannot be reached.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parents[1] / "requirements.lock"


def main() -> int:
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--no-deps", "--disable-pip", "-r", str(LOCK)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(f"not audited: {(done.stderr.strip().splitlines() or ['pip-audit said nothing'])[-1]}")
        return 3
    code, lines = verdict(found)
    print("\n".join(lines))
    return code


def verdict(found: list[dict[str, Any]]) -> tuple[int, list[str]]:
    """Exit code and lines for pip-audit's rows."""
    skipped = [row["name"] for row in found if "skip_reason" in row]
    bad = [(row["name"], row["version"], one["id"]) for row in found for one in row.get("vulns", ())]
    lines = [f"{name} {version}: {known}" for name, version, known in bad]
    lines.append(f"{len(found) - len(skipped)} of {len(found)} looked up, {len(bad)} known vulnerabilities")
    if skipped:
        lines.append(f"not looked up: {', '.join(skipped[:8])}{' ...' if len(skipped) > 8 else ''}")
    return (1 if bad else 3 if len(skipped) == len(found) else 0), lines


if __name__ == "__main__":
    sys.exit(main())
