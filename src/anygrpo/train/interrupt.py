"""Ctrl-C once: finish the step, save, stop. Twice: stop now. SIGTERM and SIGHUP (a closed terminal) do as Ctrl-C does.

The same signal has to come twice: under torchrun a Ctrl-C comes as SIGINT from the terminal and as SIGTERM from it.
Schedulers send SIGTERM and, a while later, SIGKILL. With ANYGRPO_GRACE_SECONDS set (to less than that while), a step
that has not ended by then is given up: the state before it is saved, if no update of it was made yet.
"""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

INTERRUPTED = "interrupted"
GRACE = "ANYGRPO_GRACE_SECONDS"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stoppable(Protocol):
    stop_reason: str | None

    def stop(self, reason: str) -> None: ...


class GraceOver(KeyboardInterrupt):
    """The step did not end in the time that the scheduler gives."""


def grace_seconds() -> float | None:
    """Seconds from SIGTERM to giving the step up; None: the step always ends.

    Raises:
        ConfigError: not a positive number.
    """
    text = os.environ.get(GRACE)
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < 1e9:
        raise ConfigError(
            Text(f"{GRACE} = {text!r}", f"{GRACE} = {text!r}"),
            Text(
                "give seconds, fewer than between SIGTERM and SIGKILL", "请给出秒数，小于 SIGTERM 与 SIGKILL 之间的时间"
            ),
        )
    return seconds


@contextmanager
def interruptible(run: Stoppable) -> Iterator[None]:
    """Inside, SIGINT, SIGTERM and SIGHUP ask the run to stop after its step; a second one raises KeyboardInterrupt.
    Signals that are ignored (SIGHUP under nohup) stay ignored."""

    came: set[int] = set()
    timers: list[threading.Timer] = []
    over = threading.Event()
    grace = grace_seconds()

    def give_up() -> None:  # in the timer's thread: a signal to the main one wakes it where it waits
        over.set()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def on_signal(number: int, frame: Any) -> None:
        if number in came:
            raise GraceOver if over.is_set() and number == signal.SIGTERM else KeyboardInterrupt
        came.add(number)
        run.stop(INTERRUPTED)
        if number == signal.SIGTERM and grace is not None:
            timers.append(threading.Timer(grace, give_up))
            timers[0].daemon = True
            timers[0].start()

    try:
        wanted = [s for s in _SIGNALS if signal.getsignal(s) != signal.SIG_IGN]
        previous = {s: signal.signal(s, on_signal) for s in wanted}
    except ValueError:  # not the main thread: someone else handles signals
        yield
        return
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        for number, handler in previous.items():
            signal.signal(number, handler)
