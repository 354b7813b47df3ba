"""Which policy and task sections a recipe may hold. One line here makes a new kind known."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from anygrpo.config.base import Section


class PythonPolicyConfig(Section):
    """A policy of the user's own: a function `(options, seed) -> Policy` in a Python file."""

    kind: Literal["python"]
    factory: str
    "path.py:function"
    options: dict[str, Any] = Field(default_factory=dict)


POLICIES: list[Any] = [PythonPolicyConfig]
TASKS: list[Any] = []
