"""What a run must be able to do with its queue: keep it in a checkpoint, and go back to one."""

from __future__ import annotations

from typing import Any, Protocol


class Waiting(Protocol):
    """Groups that threads make and that wait to be trained on (`anygrpo.train.queue`)."""

    def state(self) -> dict[str, Any] | None: ...

    def forget(self) -> None: ...
