"""What a process and all it started use, seen from outside: CPU time, time spent waiting for a CPU, memory.

The difference matters to a judge: an answer that used up its CPU time is at fault; one that waited for a CPU is not.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FRESH = 0.04
"""Seconds for which one reading of the process table serves all that watch."""


@dataclass(frozen=True)
class Used:
    """Attributes: cpu and waited, in seconds, of the whole tree since it began; memory in bytes, now, without what is
    shared with files."""

    cpu: float = 0.0
    waited: float = 0.0
    memory: int = 0


class _Table:
    """pid -> (parent, own CPU seconds, CPU seconds of children that have ended), read at most every `_FRESH`
    seconds."""

    def __init__(self) -> None:
        self._lock, self._read_at = threading.Lock(), -1.0
        self._rows: dict[int, tuple[int, float, float]] = {}

    def rows(self) -> dict[int, tuple[int, float, float]]:
        with self._lock:
            if time.monotonic() - self._read_at > _FRESH:
                self._rows, self._read_at = dict(filter(None, map(_row, os.listdir("/proc")))), time.monotonic()
            return self._rows


def _row(name: str) -> tuple[int, tuple[int, float, float]] | None:
    if not name.isdigit():
        return None
    with contextlib.suppress(OSError, ValueError, IndexError):
        parts = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
        ticks = [int(n) / _TICK for n in parts[11:15]]
        return int(name), (int(parts[1]), ticks[0] + ticks[1], ticks[2] + ticks[3])
    return None


_TABLE = _Table()


def descendants(pid: int) -> list[int]:
    """`pid` and all that it started and that still is its descendant."""
    children: dict[int, list[int]] = {}
    for child, (parent, _, _) in _TABLE.rows().items():
        children.setdefault(parent, []).append(child)
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


class Watch:
    """Watches a process by its number from its start. A process that ends between two looks may go uncounted, at most
    one look's time: what nobody accounts for counts as idle (see `judging`)."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._own: dict[int, float] = {}
        self._waits: dict[tuple[int, str], float] = {}
        self.used = Used()

    def look(self) -> Used:
        """What the tree has used by now; never less than before."""
        rows, memory, with_children = _TABLE.rows(), 0, 0.0
        for pid in descendants(self._pid):
            _, own, ended = rows.get(pid, (0, 0.0, 0.0))
            self._own[pid] = max(own, self._own.get(pid, 0.0))
            with_children += own + ended
            memory += self._looked(pid)
        cpu = max(with_children, sum(self._own.values()), self.used.cpu)
        self.used = Used(cpu, sum(self._waits.values()), memory)
        return self.used

    def _looked(self, pid: int) -> int:
        with contextlib.suppress(OSError, ValueError, IndexError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                wait = int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_bytes().split()[1]) / 1e9
                self._waits[pid, thread] = max(wait, self._waits.get((pid, thread), 0.0))
        with contextlib.suppress(OSError, ValueError, IndexError):
            _, resident, shared = Path(f"/proc/{pid}/statm").read_bytes().split()[:3]
            return (int(resident) - int(shared)) * _PAGE
        return 0


def memory_kills() -> int:
    """How often this machine has killed a process for want of memory."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
