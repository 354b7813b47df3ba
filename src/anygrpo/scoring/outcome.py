"""What a reward says of one output."""

from __future__ import annotations

Outcome = float | str | None
"""A finite number, the reason why there is none, or None: the reward does not apply to that output."""


class Raised(str):
    """A reason: the reward itself raised. `trace` is its traceback."""

    trace: str

    def __new__(cls, reason: str, trace: str) -> Raised:
        made = super().__new__(cls, reason)
        made.trace = trace
        return made


class Elsewhere(str):
    """A reason that is no fault of the output's: the machine, a tool or an endpoint failed. In an evaluation such a
    sample is left out; any other without a verdict has the task's lowest reward."""
