"""Threads that take turns at one thing (a model that samples): one works at a time, the lowest number first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(Exception):
    """What the thread works on is of no use any more."""


class Turnstile:
    """Whoever works lets others in between two decisions (`give_way`) and while it waits (`outside`)."""

    def __init__(self) -> None:
        self._waiting: list[int] = []
        self._inside: int | None = None
        self._stopped = False
        self._changed = threading.Condition()

    @contextmanager
    def inside(self, number: int) -> Iterator[None]:
        """Alone. Of those that wait the lowest `number` is next; no two threads have the same.

        Raises:
            Stopped: `stop` was called.
        """
        self._enter(number)
        try:
            yield
        finally:
            self._leave(number)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """For whoever is inside: others work meanwhile. Raises: Stopped."""
        number = self._inside
        assert number is not None
        self._leave(number)
        try:
            yield
        finally:
            self._enter(number)

    def give_way(self) -> None:
        """For whoever is inside: one that comes first and waits works now. Raises: Stopped."""
        with self._changed:
            number = self._inside
            assert number is not None
            others_first = self._stopped or any(other < number for other in self._waiting)
        if others_first:
            with self.outside():
                pass

    def stop(self) -> None:
        """Whoever waits, or gives way, gets `Stopped`."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _enter(self, number: int) -> None:
        with self._changed:
            self._waiting.append(number)
            try:
                self._changed.wait_for(lambda: self._stopped or (self._inside is None and number == min(self._waiting)))
                if self._stopped:
                    raise Stopped
                self._inside = number
            finally:
                self._waiting.remove(number)
                self._changed.notify_all()

    def _leave(self, number: int) -> None:
        with self._changed:
            if self._inside == number:  # not where it was stopped outside
                self._inside = None
                self._changed.notify_all()
