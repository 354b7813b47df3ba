"""Recipe tables of a user's own policy and task."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from anygrpo.recipe.section import Section


class PythonPolicyConfig(Section):
    """A policy of the user's own: a function `(options, seed) -> Policy` in a Python file."""

    kind: Literal["python"]
    factory: str
    "path.py:function"
    options: dict[str, Any] = Field(default_factory=dict)


class PythonTask(Section):
    """A user's class: `task = "path.py:Class"`, built as Class(seed=seed, **arguments), with the Task protocol."""

    kind: Literal["python"]
    task: str
    arguments: dict[str, Any] = Field(default_factory=dict)
