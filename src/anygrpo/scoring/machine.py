"""How much of this machine the process may use."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")


def usable_cpus() -> int:
    """CPUs that this process may run on at once: by its affinity, and by its control group's quota; at least 1.

    `os.cpu_count()` names those of the machine, of which a container or a batch system may give a few.
    """
    try:
        allowed = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        allowed = os.cpu_count() or 1
    return max(1, math.ceil(min(allowed, _quota(_GROUPS))))


def _quota(root: Path) -> float:
    """CPUs by the quota of the control group, infinity where there is none (version 2, then version 1)."""
    quotas = [math.inf]
    with contextlib.suppress(OSError, ValueError):
        most, period = (root / "cpu.max").read_text().split()
        quotas.append(math.inf if most == "max" else int(most) / int(period))
    with contextlib.suppress(OSError, ValueError):
        most = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        period = int((root / "cpu" / "cpu.cfs_period_us").read_text())
        quotas.append(most / period if most > 0 else math.inf)
    return min(q for q in quotas if q > 0)


def usable_memory() -> int:
    """Bytes that this process may use: the machine's memory, or its control group's limit where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int((_GROUPS / name).read_text()))
    return total
