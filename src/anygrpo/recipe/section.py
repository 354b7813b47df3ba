"""Building blocks of recipes: strict models, and numbers that may follow a schedule."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from anygrpo.choices.catalogue import names
from anygrpo.spoken import Text


def _leaves(annotation: Any) -> set[Any]:
    """The types that a union is made of (words of a Literal count as text); of a list or table only itself."""
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return {leaf for arg in get_args(annotation) for leaf in _leaves(arg)}
    return {str} if get_origin(annotation) is Literal else {annotation}


class Section(BaseModel):
    """A table of the recipe. Unknown keys are errors; values are checked, never coerced from the wrong type.

    Numbers are finite. TOML has no null: "none" stands for it wherever a key may be without a value.
    """

    limit_key: ClassVar[str | None] = None
    "Of a policy: the key that says how many decisions a sample may have."
    language_peers: ClassVar[bool] = True
    "Of a policy: whether trainers of language models have settings of the same meaning."

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    @property
    def own_clip(self) -> str:
        """Of a policy: the clip range it has by itself, in words."""
        return "0.2 unless it has one"

    @model_validator(mode="before")
    @classmethod
    def _none_by_name(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {k: None if v == "none" and cls._may_be_none(k) else v for k, v in data.items()}

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_numbers(cls, data: Any) -> Any:
        """Neither true nor "0.3" is a number, though both could be read as one."""
        for name, value in data.items() if isinstance(data, dict) else ():
            allowed = _leaves(cls.model_fields[name].annotation) if name in cls.model_fields else set()
            nothing = value == "none" and NoneType in allowed
            if isinstance(value, bool | str) and allowed & {int, float} and type(value) not in allowed and not nothing:
                raise PydanticCustomError("not_a_number", "not a number", {"key": name, "value": value})
        return data

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


class UserFunction(Section):
    """A function of the user's own: `{ function = "path.py:name", arguments = { ... } }`; "path.py:name" alone is the
    same without arguments. Loaded when the run is built (`anygrpo.core.choices`), from the file as it then is."""

    function: str
    "path.py:name."
    arguments: dict[str, Any] = Field(default_factory=dict)
    "Further keyword arguments."

    def __hash__(self) -> int:
        return hash((self.function, repr(sorted(self.arguments.items()))))

    @model_validator(mode="after")
    def _names_a_file(self) -> UserFunction:
        if not is_user_code(self.function):
            raise ValueError(
                Text(
                    f'function = "{self.function}" does not name an object in a file: "path.py:function"',
                    f'function = "{self.function}" 没有指向文件中的对象：应写作 "path.py:名称"',
                )
            )
        return self


def is_user_code(text: str) -> bool:
    """Whether a text is spelt as "path.py:name"."""
    path, _, name = text.rpartition(":")
    return path.endswith(".py") and name.isidentifier()


def by_function(table: Any) -> Any:
    """A table whose function says its kind: "path.py:name", `{function = ...}` or `{kind = "path.py:name"}` is
    `{kind = "function", function = ...}`."""
    if isinstance(table, str) and is_user_code(table):
        return {"kind": "function", "function": table}
    if not isinstance(table, dict):
        return table
    if isinstance(kind := table.get("kind"), str) and is_user_code(kind):
        return {**table, "kind": "function", "function": kind}
    return {**table, "kind": "function"} if "function" in table and "kind" not in table else table


def by_functions(tables: Any) -> Any:
    """`by_function` of each in a list of tables."""
    return tuple(map(by_function, tables)) if isinstance(tables, list | tuple) else tables


def _one_of(kind: str) -> Callable[[Any], Any]:
    known = names(kind)

    def check(value: Any) -> Any:
        if isinstance(value, dict | UserFunction):
            return UserFunction.model_validate(value)
        if isinstance(value, str) and (value in known or is_user_code(value)):
            return value
        expected = ", ".join(f"'{name}'" for name in known)
        raise PydanticCustomError("literal_error", "must be one of {expected}, or path.py:name", {"expected": expected})

    return check


def _plain(value: str | UserFunction) -> str | dict[str, Any]:
    return value if isinstance(value, str) else value.model_dump()


def choice_of(kind: str) -> Any:
    """The type of a key that names a card of this kind, or a user's own function."""
    table = {"type": "object", "required": ["function"]}
    schema = {"anyOf": [{"enum": list(names(kind))}, {"type": "string", "pattern": r"\.py:\w+$"}, table]}
    return Annotated[
        str | UserFunction,
        PlainValidator(_one_of(kind)),
        PlainSerializer(_plain, return_type=Any),
        WithJsonSchema(schema),
    ]


class Schedule(Section):
    """A number that changes over a stage's progress: `{kind = "cosine", start = 1e-4, end = 0.0, warmup = 10}`.

    Evaluated by `anygrpo.algorithm.schedules.value_at(kind, start, end, step, steps, warmup, milestones, factor)`.
    """

    @model_validator(mode="before")
    @classmethod
    def _kind_of_a_function(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("kind") == "adaptive":
            raise ValueError(
                Text(
                    'kind = "adaptive" is a controller: it holds algorithm.temperature, and no other number',
                    'kind = "adaptive" 是控制器：它只用于 algorithm.temperature',
                )
            )
        return by_function(data) if isinstance(data, dict) else data

    kind: Literal["constant", "linear", "cosine", "exponential", "step", "function"] = "linear"
    start: float
    "Value after warm-up."
    end: float = 0.0
    "Value at the last step; 0 would be reached a step later, so that no step is wasted."
    function: str | None = None
    'kind = "function": path.py:name, called with (start, end, progress in (0, 1)).'
    arguments: dict[str, Any] = Field(default_factory=dict)
    "Further keyword arguments of the function."
    warmup: int = Field(0, ge=0)
    "Steps that climb linearly from 0 (first step: start / warmup) to `start`."
    steps: int | None = Field(None, ge=1)
    "Length; the stage's own where not given."
    milestones: tuple[int, ...] = ()
    "kind = step: where `start` is multiplied by `factor`."
    factor: float = 0.5
    "What `start` is multiplied by at each milestone."

    @model_validator(mode="after")
    def _can_be_followed(self) -> Schedule:
        if self.kind == "exponential" and self.start * self.end <= 0:
            raise ValueError(
                Text(
                    f"exponential from {self.start} to {self.end} (end is 0 where not given): both must be of one sign",
                    f"指数调度从 {self.start} 到 {self.end}（未给出 end 时为 0）：两者应同号",
                )
            )
        if (self.kind == "function") != (self.function is not None and is_user_code(self.function)):
            raise ValueError(
                Text(
                    f'kind = "{self.kind}" and function = {self.function}: give both, as "path.py:name"',
                    f'kind = "{self.kind}" 而 function = {self.function}：两者要一起给出，写作 "path.py:名称"',
                )
            )
        if (self.kind == "step") != bool(self.milestones):
            raise ValueError(
                Text(
                    f'kind = "{self.kind}" and milestones = {list(self.milestones)}: milestones are the steps at which '
                    'kind = "step" multiplies, and it needs some',
                    f'kind = "{self.kind}" 而 milestones = {list(self.milestones)}：milestones 是 kind = '
                    f'"step" 相乘的那些步，后者必须有它',
                )
            )
        return self

    def extremes(self) -> tuple[float, ...]:
        """Values that enclose all others from the end of warm-up on."""
        if self.kind == "constant":
            return (self.start,)
        if self.kind == "step":
            return tuple(self.start * self.factor**n for n in range(len(self.milestones) + 1))
        return self.start, self.end


Number = Annotated[float | Schedule, Field(union_mode="left_to_right")]
"""A float, or a schedule wherever a float may stand."""


def _within(low: float, high: float | None = None, open_at_low: bool = False) -> Callable[[Any], Any]:
    most = Text("", "") if high is None else Text(f" and at most {high:g}", f"且不大于 {high:g}")
    least = Text(f"above {low:g}", f"大于 {low:g}") if open_at_low else Text(f"at least {low:g}", f"不小于 {low:g}")
    span = Text("must be ", "应") + least + most

    def check(value: float | Schedule) -> float | Schedule:
        for x in value.extremes() if isinstance(value, Schedule) else (value,):
            if x < low or (open_at_low and x == low) or (high is not None and x > high):
                reached = Text(f", and its schedule reaches {x:g}", f"，而其调度会到 {x:g}")
                raise ValueError(span + reached if x is not value else span)
        return value

    return check


def _range(low: float, high: float | None = None, open_at_low: bool = False) -> Any:
    """What a JSON schema says of it."""
    said: dict[str, Any] = {"exclusiveMinimum" if open_at_low else "minimum": low}
    return Field(json_schema_extra=said if high is None else {**said, "maximum": high})


NotNegative = Annotated[Number, AfterValidator(_within(0.0)), _range(0.0)]
Rate = Annotated[Number, AfterValidator(_within(0.0, 1e6)), _range(0.0, 1e6)]
"""A learning rate; near float32's largest number the optimizer itself cannot take it."""
Positive = Annotated[Number, AfterValidator(_within(0.0, open_at_low=True)), _range(0.0, open_at_low=True)]
Share = Annotated[Number, AfterValidator(_within(0.0, 1.0)), _range(0.0, 1.0)]
"""From 0 to 1, both included."""
SomeShare = Annotated[Number, AfterValidator(_within(0.0, 1.0, open_at_low=True)), _range(0.0, 1.0, True)]
"""Above 0, up to 1."""
TwoOrMore = Annotated[Number, AfterValidator(_within(2.0)), _range(2.0)]


def one_source(model: Any, function: str | None, arguments: dict[str, Any]) -> None:
    """Raises: ValueError where not exactly one of `model` and `function` is given, or arguments without a function."""
    if (model is None) == (function is None):
        raise ValueError(Text("give exactly one of model and function", "model 与 function 必须且只能给一个"))
    if arguments and function is None:
        raise ValueError(
            Text("arguments are for function, and model is given", "arguments 是给 function 的，而给出的是 model")
        )
