"""SIGTERM and a closed terminal end a command as Ctrl-C does: what it began is cleaned up on the way out."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Ended(KeyboardInterrupt):
    """A signal asked for the end.

    Attributes:
        number: the signal's.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


@contextmanager
def cleaned_up() -> Iterator[None]:
    """Inside, a signal that would end the process raises `Ended` instead. Signals that are handled or ignored already
    stay so; ranks, which may wait in a collective where no exception is seen, end at once as before."""
    if threading.current_thread() is not threading.main_thread() or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        yield
        return
    owner = os.getpid()

    def on_signal(number: int, _: Any) -> None:
        if os.getpid() != owner:  # a forked worker, which has nothing of ours to clean up
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        raise Ended(number)

    taken = [number for number in _SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
