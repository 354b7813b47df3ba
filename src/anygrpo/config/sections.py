"""Which policy and task sections a recipe may hold. One line here makes a new kind known."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from anygrpo.config.base import Section
from anygrpo.config.diffusion import DiffusionPolicyConfig, MotionPolicyConfig, MotionTaskConfig
from anygrpo.config.language import CausalLMConfig
from anygrpo.config.restoration import RestorationSection, RestorerSection, StochasticSection
from anygrpo.config.selection import DemonstrationsConfig, DigitsVQAConfig, SelectorConfig, StoredCandidatesConfig
from anygrpo.config.text_tasks import ArithmeticTask, JsonlTask, PythonTask, ReasoningGymTask


class PythonPolicyConfig(Section):
    """A policy of the user's own: a function `(options, seed) -> Policy` in a Python file."""

    kind: Literal["python"]
    factory: str
    "path.py:function"
    options: dict[str, Any] = Field(default_factory=dict)


POLICIES: list[Any] = [
    CausalLMConfig,
    SelectorConfig,
    DiffusionPolicyConfig,
    MotionPolicyConfig,
    StochasticSection,
    RestorerSection,
    PythonPolicyConfig,
]
TASKS: list[Any] = [
    ArithmeticTask,
    JsonlTask,
    ReasoningGymTask,
    PythonTask,
    DigitsVQAConfig,
    DemonstrationsConfig,
    StoredCandidatesConfig,
    MotionTaskConfig,
    RestorationSection,
]
