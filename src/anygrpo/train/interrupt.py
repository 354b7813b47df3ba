"""Ctrl-C once: finish the step, save, stop. Twice: stop now.

The same signal has to come twice: under torchrun a Ctrl-C comes as SIGINT from the terminal and as SIGTERM from it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

INTERRUPTED = "interrupted"


class Stoppable(Protocol):
    stop_reason: str | None

    def stop(self, reason: str) -> None: ...


@contextmanager
def interruptible(run: Stoppable) -> Iterator[None]:
    """Inside, SIGINT and SIGTERM ask the run to stop after its step; a second one raises KeyboardInterrupt."""

    came: set[int] = set()

    def on_signal(number: int, frame: Any) -> None:
        if number in came:
            raise KeyboardInterrupt
        came.add(number)
        run.stop(INTERRUPTED)

    try:
        previous = {s: signal.signal(s, on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: someone else handles signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
