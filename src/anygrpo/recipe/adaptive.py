"""Settings of [algorithm] that follow what training shows: a temperature under control, groups of unequal size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import (
    Field,
    PlainSerializer,
    PlainValidator,
    SerializationInfo,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from anygrpo.recipe.section import Positive, Schedule, Section, is_user_code
from anygrpo.spoken import Text

if TYPE_CHECKING:
    from anygrpo.recipe.algorithm import AlgorithmConfig


class AdaptiveTemperature(Section):
    """`temperature = { kind = "adaptive", target = 0.6, of = "live" }`: held by a controller
    (`anygrpo.algorithm.temperature`)."""

    kind: Literal["adaptive"]
    target: float = Field(gt=0)
    "What `of` is held at: nats of a decision, or a share of groups."
    of: Literal["entropy", "live"] = "entropy"
    "The mean entropy of a decision, or the share of groups with spread."
    start: float = Field(1.0, gt=0)
    "The temperature at the first step."
    low: float = Field(0.5, gt=0)
    "The lowest temperature."
    high: float = Field(1.5, gt=0)
    "It stays within these."
    rate: float = Field(0.05, gt=0, le=1)
    "Largest change of its logarithm in a step."

    @model_validator(mode="after")
    def _in_order(self) -> AdaptiveTemperature:
        if not self.low <= self.start <= self.high:
            raise ValueError(
                Text(
                    f"low = {self.low}, start = {self.start}, high = {self.high}: start lies between them",
                    f"low = {self.low}，start = {self.start}，high = {self.high}：start 应在二者之间",
                )
            )
        if self.of == "live" and self.target >= 1:
            raise ValueError(
                Text(
                    f"target = {self.target} of the share of live groups: it has to be below 1",
                    f"target = {self.target} 是有差异的组所占比例：应小于 1",
                )
            )
        return self


_NUMBER: TypeAdapter[float | Schedule | None] = TypeAdapter(Positive | None)
_KINDS = (*get_args(Schedule.model_fields["kind"].annotation), "adaptive")


def _temperature(value: Any) -> Any:
    """What a table is, its `kind` says."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == "adaptive":
        return AdaptiveTemperature.model_validate(value)
    if isinstance(kind, str) and kind not in _KINDS and not is_user_code(kind):
        expected = ", ".join(f"'{name}'" for name in _KINDS)
        raise PydanticCustomError("literal_error", "must be one of {expected}", {"expected": expected})
    return value if isinstance(value, AdaptiveTemperature) else _NUMBER.validate_python(value)


def _plain(value: Any, info: SerializationInfo) -> Any:
    return value.model_dump(mode=info.mode) if isinstance(value, Section) else value


_COUNT: TypeAdapter[int] = TypeAdapter(Annotated[int, Field(ge=1)])


def _size(value: Any) -> Any:
    if isinstance(value, str) and value.strip().isdigit():
        raise PydanticCustomError("not_a_number", "not a number", {"key": "", "value": value})
    if isinstance(value, str) and value != "auto":
        raise PydanticCustomError("literal_error", "{expected}", {"expected": "'auto', 'a whole number'"})
    return value if value == "auto" else _COUNT.validate_python(value)


_SIZES = {"anyOf": [{"type": "integer", "minimum": 1}, {"enum": ["auto"]}]}
GroupSize = Annotated[int | Literal["auto"], PlainValidator(_size), WithJsonSchema(_SIZES)]
_DEGREES = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "object"}, {"type": "null"}]}
Temperature = Annotated[
    AdaptiveTemperature | Schedule | float | None,
    PlainValidator(_temperature),
    PlainSerializer(_plain, return_type=Any),
    WithJsonSchema(_DEGREES),
]


def check_sizes(a: AlgorithmConfig) -> None:
    """Raises: ValueError where the keys of `group_size = "auto"` cannot be met, or would be read by nothing."""
    if a.group_size != "auto":
        if a.samples_per_step is not None:
            raise ValueError(
                Text(
                    f'samples_per_step = {a.samples_per_step} is read where group_size = "auto"; it is {a.group_size}',
                    f'samples_per_step = {a.samples_per_step} 只在 group_size = "auto" 时使用；现为 {a.group_size}',
                )
            )
        return
    if a.largest_group < a.smallest_group:
        raise ValueError(
            Text(
                f"largest_group = {a.largest_group} is below smallest_group = {a.smallest_group}",
                f"largest_group = {a.largest_group} 小于 smallest_group = {a.smallest_group}",
            )
        )
    least = a.prompts_per_step * a.smallest_group
    if a.samples_per_step is not None and a.samples_per_step < least:
        raise ValueError(
            Text(
                f"samples_per_step = {a.samples_per_step} for prompts_per_step = {a.prompts_per_step} and "
                f"smallest_group = "
                f"{a.smallest_group}: {least} or more are needed",
                f"samples_per_step = {a.samples_per_step}，而 prompts_per_step = {a.prompts_per_step}、"
                f"smallest_group = {a.smallest_group}：至少需要 {least}",
            )
        )
