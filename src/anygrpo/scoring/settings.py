"""Recipe tables of rewards: `[[task.rewards]]`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from anygrpo.recipe.section import Section, by_functions
from anygrpo.spoken import Text


class BaseRewardConfig(Section):
    """What every reward has. `name` is its metric: reward/component/NAME."""

    weight: float = 1.0
    "Of this part in the sum."
    name: str | None = Field(None, pattern=r"^[A-Za-z0-9_.-]+$")
    "The component's name; the kind (or the function's name) where not given."


class NumberRewardConfig(BaseRewardConfig):
    """1 where the last number in the output equals the answer's."""

    kind: Literal["number"]
    column: str = "answer"
    "The data's column with the answer."
    tolerance: float = Field(0.0, ge=0)
    "Largest absolute difference still called equal."


class ExactRewardConfig(BaseRewardConfig):
    """1 where the output, stripped of outer white space, is the answer (or one of a list of answers)."""

    kind: Literal["exact"]
    column: str = "answer"
    "The data's column with the answer."
    ignore_case: bool = False
    "Whether capitals are alike."


class RegexRewardConfig(BaseRewardConfig):
    """1 where the pattern is found in the output (`full`: where it describes the whole output)."""

    kind: Literal["regex"]
    pattern: str
    "A regular expression."
    full: bool = False
    "It has to describe the whole output."
    timeout: float = Field(5.0, gt=0)
    "Seconds: a pattern may backtrack for ever."

    @model_validator(mode="after")
    def _compiles(self) -> RegexRewardConfig:
        import re

        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ValueError(
                Text(
                    f"pattern {self.pattern!r} is not a regular expression: {error}",
                    f"pattern {self.pattern!r} 不是正则表达式：{error}",
                )
            ) from None
        return self


class LengthRewardConfig(BaseRewardConfig):
    """max(0, 1 - |length - target| / width)."""

    kind: Literal["length"]
    target: float = Field(gt=0)
    "The length that is wanted."
    width: float | None = Field(None, gt=0)
    "Distance at which the reward reaches 0; the target itself where not given."
    unit: Literal["words", "characters"] = "words"
    "Words are runs of letters and digits; a Chinese character counts as a word."


class ConnectivesRewardConfig(BaseRewardConfig):
    """min(1, distinct connective words / target): distinct ones, so that repeating one earns nothing."""

    kind: Literal["connectives"]
    language: Literal["en", "zh", "both"] = "both"
    "Of the words."
    target: int = Field(3, ge=1)
    "Distinct words for the full reward."


class RepetitionRewardConfig(BaseRewardConfig):
    """-(share of n-grams seen before in the same output): 0 for no repetition, towards -1 for a loop."""

    kind: Literal["repetition"]
    ngram: int = Field(3, ge=1)
    "Length of what may repeat."


class EnvironmentRewardConfig(BaseRewardConfig):
    """The sum of the rewards that the policy's environment gave (docs/turns.md)."""

    kind: Literal["environment"]


class MathVerifyRewardConfig(BaseRewardConfig):
    """1 where math-verify finds the output equal to the answer (LaTeX, fractions, sets ...)."""

    kind: Literal["math_verify"]
    column: str = "answer"
    "The data's column with the answer."
    timeout: float = Field(5.0, gt=0)
    "Seconds a call may take before its worker is killed."


class CodeRewardConfig(BaseRewardConfig):
    """The output's Python run against tests in a sandbox: 1 where all pass (`partial`: the share that passes)."""

    kind: Literal["code"]
    column: str = "tests"
    "The data's column with the tests."
    entry_point: str = "entry_point"
    "The column that names the function to be tested, where the tests are HumanEval's `check(candidate)`."
    partial: bool = False
    "The share of tests that pass, in place of all or nothing."
    timeout: float = Field(5.0, gt=0)
    "Seconds of CPU time for one run of the answer. Waiting for a busy machine does not count."
    memory_mb: int = Field(256, ge=32)
    "Memory of all its processes together."
    processes: int = Field(8, ge=1)
    "Processes and threads alive at once."


class FunctionRewardConfig(BaseRewardConfig):
    """A user's `path.py:function`, called in a worker process: ours, or one for TRL, verl, verifiers or OpenRLHF."""

    kind: Literal["function"]
    function: str
    "path.py:name."
    timeout: float = Field(10.0, gt=0)
    "Seconds a call may take before its worker is killed."
    bounds: tuple[float, float] | None = None
    "Least and greatest value it gives. Where known, an answer without a verdict has the lowest reward in evaluations."
    signature: Literal["auto", "anygrpo", "sample", "trl", "verl", "verifiers", "rubric", "openrlhf"] = "auto"
    "How it is called; told by the names of its parameters where not given."
    retry_alone: bool = True
    "After a failed call, call again for each output alone, so that one bad output costs only itself; false where the"
    "function compares outputs with each other."
    arguments: dict[str, Any] = Field(default_factory=dict)
    "Further keyword arguments."
    columns: dict[str, str] = Field(default_factory=dict)
    "Name that the function has for a column -> the column's name in the data."


class JudgeRewardConfig(BaseRewardConfig):
    """A language model over an OpenAI-compatible endpoint: its score, from `low` to `high`, brought to [0, 1]."""

    kind: Literal["judge"]
    url: str
    "Up to and without /chat/completions: http://localhost:8000/v1"
    model: str
    "The endpoint's name of it."
    template: str | None = None
    "A text file with {prompt}, {output} and any column, {low} and {high}; it asks for JSON with a score."
    system: str | None = None
    "System message of the question."
    low: float = 0.0
    "Least score."
    high: float = 10.0
    "Greatest score."
    cache: str | None = None
    "SQLite file that keeps answers by what was asked; no question is asked twice, in later runs either."
    key_env: str = "OPENAI_API_KEY"
    "Environment variable that holds the key."
    timeout: float = Field(120.0, gt=0)
    "Seconds for one question with its retries."
    attempt: float = Field(60.0, gt=0)
    "Seconds for one try."
    retries: int = Field(3, ge=0)
    "Tries after the first, where the endpoint is busy or ill, or the answer cannot be read."
    concurrency: int = Field(8, ge=1)
    "Questions under way at once."
    per_minute: float = Field(0.0, ge=0)
    "Most requests a minute; 0 for no limit."
    parameters: dict[str, Any] = Field(default_factory=dict)
    "Put into the request: max_tokens, seed, ... Temperature is 0 unless given."
    structured: Literal["json_schema", "json_object", "none"] = "json_schema"
    "How the form of the answer is asked for; none for servers that know neither."
    prompt_price: float = Field(0.0, ge=0)
    "Money for a million tokens of prompts."
    completion_price: float = Field(0.0, ge=0)
    "Money for a million tokens of answers."
    budget: float = Field(0.0, ge=0)
    "No question is asked once so much is spent; 0 for no limit."


class RewardModelRewardConfig(BaseRewardConfig):
    """A sequence classifier with one output, from the Hub or a folder, in a process and on a device of its own."""

    kind: Literal["reward_model"]
    model: str
    "Hub name or folder."
    device: str = "auto"
    "cuda:1, ...; auto: the first GPU where there is one."
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    "Type that it computes in."
    batch_size: int = Field(16, ge=1)
    "Outputs scored at once."
    max_length: int | None = Field(None, ge=1)
    "Longer conversations, in tokens, are invalid; what the model can read where not given."
    timeout: float = Field(300.0, gt=0)
    "Seconds for all of a step's outputs."
    load_timeout: float = Field(900.0, gt=0)
    "Seconds for loading it."


RewardConfig = Annotated[
    NumberRewardConfig
    | ExactRewardConfig
    | RegexRewardConfig
    | LengthRewardConfig
    | ConnectivesRewardConfig
    | RepetitionRewardConfig
    | EnvironmentRewardConfig
    | MathVerifyRewardConfig
    | CodeRewardConfig
    | JudgeRewardConfig
    | RewardModelRewardConfig
    | FunctionRewardConfig,
    Field(discriminator="kind"),
]


Rewards = Annotated[tuple[RewardConfig, ...], BeforeValidator(by_functions)]
"""The `[[task.rewards]]` tables, in order."""
