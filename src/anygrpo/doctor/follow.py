"""Watch anybody's growing log: each finding once, when it becomes true; a command for what is serious."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anygrpo.doctor.diagnose import Diagnosis, diagnose_log
from anygrpo.doctor.findings import SEVERITIES, Finding
from anygrpo.doctor.readers import read
from anygrpo.doctor.rules import RULES
from anygrpo.doctor.words import tell
from anygrpo.errors import DataError

PATIENCE = 50
"""Rows before the absence of something is worth a word."""


@dataclass
class Follower:
    """Says what is new. A finding of an absence waits for PATIENCE rows; a crash or an end is said when it is there."""

    said: dict[str, int] = field(default_factory=dict[str, int])

    def news(self, diagnosis: Diagnosis) -> list[Finding]:
        """Findings of weight that were not said yet, or have become graver."""
        out: list[Finding] = []
        for found in diagnosis.findings:
            weight = SEVERITIES.index(found.severity)
            live = RULES[found.rule].live
            early = (live == "patient" and diagnosis.run.rows < PATIENCE) or found.rule in ("too_short", "not_rl_log")
            if weight > 0 and not early and self.said.get(found.rule, 0) < weight:
                self.said[found.rule] = weight
                out.append(found)
        return out


def follow(
    path: str,
    mapping: dict[str, str],
    settings: dict[str, Any] | None,
    lang: str = "en",
    command: str | None = None,
    every: float = 10.0,
    looks: int | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Look at a log again and again as it grows. Returns 0 on Ctrl-C, or after `looks` looks.

    Args:
        command: run by the shell once for each serious finding; it finds ANYGRPO_RULE, ANYGRPO_TITLE,
            ANYGRPO_EVIDENCE, ANYGRPO_PRESCRIPTION and ANYGRPO_LOG in its environment, never in its text.
        every: seconds between two looks; a look that took long is waited for ten times as long.
    """
    watcher, size, done = Follower(), -1, 0
    try:
        while looks is None or done < looks:
            done += 1
            now = size_of(Path(path))
            began = time.monotonic()
            if now not in (size, 0, -1):
                size = now
                look(watcher, path, mapping, settings, lang, command)
            if looks is None or done < looks:
                sleep(max(every, 10 * (time.monotonic() - began)))
    except KeyboardInterrupt:
        pass
    return 0


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files under a folder; -1 while there is nothing."""
    try:
        return sum(p.stat().st_size for p in path.rglob("*")) if path.is_dir() else path.stat().st_size
    except OSError:
        return -1


def look(
    watcher: Follower,
    path: str,
    mapping: dict[str, str],
    settings: dict[str, Any] | None,
    lang: str,
    command: str | None,
) -> None:
    try:
        diagnosis = diagnose_log(read(path), mapping, settings)
    except DataError:  # half a line, half a file: the next look sees more
        return
    for found in watcher.news(diagnosis):
        told = tell(found, diagnosis.run, lang)
        print(
            f"[{found.severity}] {told.title} ({found.rule}, {found.certainty}): {told.evidence} -> {told.prescription}"
        )
        sys.stdout.flush()
        if command and found.severity == "serious":
            facts = {"RULE": found.rule, "TITLE": told.title, "EVIDENCE": told.evidence, "LOG": path}
            facts["PRESCRIPTION"] = told.prescription
            done = subprocess.run(command, shell=True, env=os.environ | {f"ANYGRPO_{k}": v for k, v in facts.items()})
            if done.returncode:
                print(f"--on-serious ended with {done.returncode}", file=sys.stderr)
