"""Building blocks of recipes: strict models, and numbers that may follow a schedule."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A table of the recipe. Unknown keys are errors; values are checked, never coerced from the wrong type."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Schedule(Section):
    """A number that changes over a stage's progress: `{kind = "cosine", start = 1e-4, end = 0.0, warmup = 10}`.

    Evaluated by `anygrpo.algorithm.schedules.value_at(kind, start, end, step, steps, warmup, milestones, factor)`.
    """

    kind: Literal["constant", "linear", "cosine", "exponential", "step"] = "linear"
    start: float
    "Value after warm-up."
    end: float = 0.0
    "Value at the last step."
    warmup: int = Field(0, ge=0)
    "Steps that climb linearly from 0 (first step: start / warmup) to `start`."
    steps: int | None = Field(None, ge=1)
    "Length; the stage's own where not given."
    milestones: tuple[int, ...] = ()
    "kind = step: where `start` is multiplied by `factor`."
    factor: float = 0.5


Number = Annotated[float | Schedule, Field(union_mode="left_to_right")]
"""A float, or a schedule wherever a float may stand."""
