"""Recipe tables of rewards: `[[task.rewards]]`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from anygrpo.recipe.section import Section


class RewardSection(Section):
    """What every reward has. `name` is its metric: reward/component/NAME."""

    weight: float = 1.0
    name: str | None = Field(None, pattern=r"^[A-Za-z0-9_.-]+$")
    "The component's name; the kind (or the function's name) where not given."


class NumberReward(RewardSection):
    """1 where the last number in the output equals the answer's."""

    kind: Literal["number"]
    column: str = "answer"
    tolerance: float = Field(0.0, ge=0)
    "Largest absolute difference still called equal."


class ExactReward(RewardSection):
    """1 where the output, stripped of outer white space, is the answer (or one of a list of answers)."""

    kind: Literal["exact"]
    column: str = "answer"
    ignore_case: bool = False


class RegexReward(RewardSection):
    """1 where the pattern is found in the output (`full`: where it describes the whole output)."""

    kind: Literal["regex"]
    pattern: str
    full: bool = False
    timeout: float = Field(5.0, gt=0)
    "Seconds: a pattern may backtrack for ever."

    @model_validator(mode="after")
    def _compiles(self) -> RegexReward:
        import re

        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ValueError(f"pattern {self.pattern!r} is not a regular expression: {error}") from None
        return self


class LengthReward(RewardSection):
    """max(0, 1 - |length - target| / width)."""

    kind: Literal["length"]
    target: float = Field(gt=0)
    width: float | None = Field(None, gt=0)
    "Distance at which the reward reaches 0; the target itself where not given."
    unit: Literal["words", "characters"] = "words"
    "Words are runs of letters and digits; a Chinese character counts as a word."


class ConnectivesReward(RewardSection):
    """min(1, distinct connective words / target): distinct ones, so that repeating one earns nothing."""

    kind: Literal["connectives"]
    language: Literal["en", "zh", "both"] = "both"
    target: int = Field(3, ge=1)


class RepetitionReward(RewardSection):
    """-(share of n-grams seen before in the same output): 0 for no repetition, towards -1 for a loop."""

    kind: Literal["repetition"]
    ngram: int = Field(3, ge=1)


class MathVerifyReward(RewardSection):
    """1 where math-verify finds the output equal to the answer (LaTeX, fractions, sets ...)."""

    kind: Literal["math_verify"]
    column: str = "answer"
    timeout: float = Field(5.0, gt=0)
    "Seconds a call may take before its worker is killed."


class CodeReward(RewardSection):
    """The output's Python run against tests in a sandbox: 1 where all pass (`partial`: the share that passes)."""

    kind: Literal["code"]
    column: str = "tests"
    entry_point: str = "entry_point"
    "The column that names the function to be tested, where the tests are HumanEval's `check(candidate)`."
    partial: bool = False
    timeout: float = Field(5.0, gt=0)
    "Seconds of CPU time for one run of the answer. Waiting for a busy machine does not count."
    memory_mb: int = Field(256, ge=32)
    "Memory of all its processes together."
    processes: int = Field(8, ge=1)
    "Processes and threads alive at once."


class FunctionReward(RewardSection):
    """A user's `path.py:function`, called in a worker process: ours, or one for TRL, verl, verifiers or OpenRLHF."""

    kind: Literal["function"]
    function: str
    timeout: float = Field(10.0, gt=0)
    "Seconds a call may take before its worker is killed."
    signature: Literal["auto", "anygrpo", "sample", "trl", "verl", "verifiers", "rubric", "openrlhf"] = "auto"
    "How it is called; told by the names of its parameters where not given."
    retry_alone: bool = True
    "After a failed call, call again for each output alone, so that one bad output costs only itself; false where the"
    "function compares outputs with each other."
    settings: dict[str, Any] = Field(default_factory=dict)
    "Further keyword arguments."


RewardConfig = Annotated[
    NumberReward
    | ExactReward
    | RegexReward
    | LengthReward
    | ConnectivesReward
    | RepetitionReward
    | MathVerifyReward
    | CodeReward
    | FunctionReward,
    Field(discriminator="kind"),
]


def _kind_of_functions(tables: Any) -> Any:
    """`function = "path.py:name"` says the kind already."""
    if not isinstance(tables, list | tuple):
        return tables
    named = lambda t: isinstance(t, dict) and "function" in t and "kind" not in t  # noqa: E731
    return tuple({**t, "kind": "function"} if named(t) else t for t in tables)


Rewards = Annotated[tuple[RewardConfig, ...], BeforeValidator(_kind_of_functions)]
"""The `[[task.rewards]]` tables, in order."""
