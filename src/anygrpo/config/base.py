"""Building blocks of recipes: strict models, and numbers that may follow a schedule."""

from __future__ import annotations

from types import NoneType
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)


class Section(BaseModel):
    """A table of the recipe. Unknown keys are errors; values are checked, never coerced from the wrong type.

    TOML has no null: "none" stands for it wherever a key may be without a value.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _none_by_name(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {k: None if v == "none" and cls._may_be_none(k) else v for k, v in data.items()}

    @classmethod
    def _may_be_none(cls, name: str) -> bool:
        return name in cls.model_fields and NoneType in get_args(cls.model_fields[name].annotation)

    @model_serializer(mode="wrap")
    def _named_none(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """For TOML: None by name where leaving the key out would mean something else."""
        table = handler(self)
        if info.mode == "json":
            fields = type(self).model_fields
            table |= {k: "none" for k, v in table.items() if v is None and fields[k].default is not None}
        return table


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
