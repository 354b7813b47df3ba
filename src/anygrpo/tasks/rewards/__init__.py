"""Rewards of texts: built-in functions, users' functions in worker processes, and what puts them together.

`builtin` and `mathematics` hold functions of the same form as a user's; `scorer` runs several with weights; `code` runs
answers in a sandbox; `probe` tries a task's reward on answers whose worth is known.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """`probe` and `Probe`, loaded when asked for: workers import this package and need no more than they use."""
    if name in ("probe", "Probe"):
        from anygrpo.tasks.rewards import probing

        return getattr(probing, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
