"""Recipe tables of a user's own policy and task."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from anygrpo.recipe.section import Section


class OwnPolicyConfig(Section):
    """A policy of the user's own: `path.py:function`, called as function(seed=seed, **arguments)."""

    kind: Literal["python"]
    function: str
    "path.py:name of a function that returns a policy, or of a class."
    arguments: dict[str, Any] = Field(default_factory=dict)
    "What the function is given besides the seed."
    model: str | None = None
    """Where to start from: a run, a checkpoint, an export, a file of weights (.safetensors, .pt, .ckpt), or a name of
    the Hub (owner/name[@revision]). The policy that the function returns takes them into `trainable()`, and they are
    its reference."""


class OwnTaskConfig(Section):
    """A task of the user's own: `path.py:Class`, built as Class(seed=seed, **arguments)."""

    kind: Literal["python"]
    function: str
    "path.py:name of a class, or of a function that returns a task."
    arguments: dict[str, Any] = Field(default_factory=dict)
    "What it is given besides the seed."


class ObjectConfig(Section):
    """A policy or task that was handed to `anygrpo.train` as an object. A recipe cannot make it again."""

    kind: Literal["object"]
    name: str
    "Module and class, for the record."
