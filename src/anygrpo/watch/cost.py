"""What a piece of work cost: seconds by the clock, of the processor, and of waiting for a processor that others had."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """Seconds.

    Attributes:
        clock: as they passed.
        processor: of all threads of this process.
        waited: of `clock`, those in which the main thread was ready and other work had the processor (Linux; else 0).
    """

    clock: float = 0.0
    processor: float = 0.0
    waited: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.clock + other.clock, self.processor + other.processor, self.waited + other.waited)

    def __sub__(self, other: Cost) -> Cost:
        """Never below 0: clocks of different kinds need not agree to the last millisecond."""
        return Cost(
            max(self.clock - other.clock, 0.0),
            max(self.processor - other.processor, 0.0),
            max(self.waited - other.waited, 0.0),
        )

    def __mul__(self, times: float) -> Cost:
        return Cost(self.clock * times, self.processor * times, self.waited * times)

    @property
    def alone(self) -> float:
        """By the clock of a machine that does nothing else."""
        return max(self.clock - self.waited, 0.0)

    def part(self, clock: float) -> Cost:
        """The share of this that so many of its seconds by the clock are."""
        return self * min(clock / self.clock, 1.0) if self.clock else Cost()


def now() -> Cost:
    """Since an arbitrary moment (the clock) and since this process began."""
    return Cost(time.time(), time.process_time(), waited())


def waited(process: str = "self") -> float:
    """Seconds that a process's main thread has waited for a processor; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def total(costs: Iterable[Cost]) -> Cost:
    return sum(costs, Cost())


def mean(costs: list[Cost]) -> Cost:
    return total(costs) * (1 / len(costs)) if costs else Cost()
