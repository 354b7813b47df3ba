"""Peak resident memory of this process."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_bytes() -> int:
    """Most bytes that this process had resident since its program began.

    From the kernel's VmHWM where there is one. Else from getrusage, whose number a child takes over from the process
    that started it: under a notebook of 8 GB it is never below 8 GB.
    """
    try:
        lines = _STATUS.read_text().splitlines()
    except (OSError, ValueError):
        lines = []
    for line in lines:
        words = line.split()
        if words[:1] == ["VmHWM:"] and words[2:] == ["kB"]:
            return int(words[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
