"""What a worker process measures: wall and CPU seconds by phase, and peak memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anygrpo.core.resident import peak_bytes

Seconds = tuple[float, float]
"""(wall, CPU of the whole process)."""


class Meter:
    """Adds up seconds by phase; waits for the GPU at each boundary."""

    def __init__(self, device: str) -> None:
        self.cuda = device == "cuda"
        self.phases: dict[str, list[float]] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._wait()
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self._wait()
            total = self.phases.setdefault(name, [0.0, 0.0])
            total[0] += time.perf_counter() - wall
            total[1] += time.process_time() - cpu

    def watch(self, owner: Any, method: str, name: str) -> None:
        """Count every call of a method as a phase."""
        inner = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.phase(name):
                return inner(*args, **kwargs)

        setattr(owner, method, timed)

    def take(self) -> dict[str, Seconds]:
        """The phases since the last call."""
        phases, self.phases = self.phases, {}
        return {name: (wall, cpu) for name, (wall, cpu) in phases.items()}

    def _wait(self) -> None:
        if self.cuda:
            import torch

            torch.cuda.synchronize()


def peak_gb(device: str) -> float:
    """Largest memory so far in GB (1e9): of the allocator on a GPU, of the process on a CPU."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated() / 1e9
    return peak_bytes() / 1e9
