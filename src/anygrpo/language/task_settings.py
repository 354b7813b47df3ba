"""Recipe tables of tasks whose outputs are texts."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from anygrpo.families import kind_of, resolve
from anygrpo.recipe.section import Section
from anygrpo.scoring.settings import Rewards
from anygrpo.spoken import Text


class ExampleConfig(Section):
    """A worked example: a question and the answer as the model should write it."""

    question: str
    "What the user asks."
    answer: str
    "What the model should write."


class TextTaskConfig(Section):
    """What every text task has."""

    system: str | None = None
    "System message put before the prompt."
    examples: tuple[ExampleConfig, ...] = ()
    "`[[task.examples]]`: put before the prompt as earlier turns. They show the form of an answer, so that it ends."
    held_out: int = Field(128, ge=1)
    "Evaluation prompts, at most."
    workers: int = Field(2, ge=1)
    "Worker processes for rewards that need one."
    worker_memory_mb: int | None = Field(None, ge=0)
    "Bound of a worker's private memory; half of the machine's (or control group's) where not given, 0 for none."
    evaluation_rewards: Rewards = ()
    "`[[task.evaluation_rewards]]`: score the held-out prompts in place of the rewards that train."
    accuracy: str | None = None
    "The reward whose full marks are counted as eval/accuracy; the first one that judges correctness where not given."


class ArithmeticTaskConfig(TextTaskConfig):
    """Endless sums of two numbers of so many digits, scored by the number reward unless others are given."""

    kind: Literal["arithmetic"]
    digits: int = Field(2, ge=1, le=12)
    "Digits of each number."
    operation: Literal["+", "-", "*"] = "+"
    "What is done with the two."
    worded: bool = False
    "Products as problems in words (operation = '*'); the held-out ones have phrasings that training never has."
    tool: str | None = None
    "Demonstrations of supervised stages call this tool with an `expression` (worded = true)."
    system: str | None = "Reply with the number only."
    "System message; an empty text for none."
    rewards: Rewards = ()
    "`[[task.rewards]]`; the number reward where none is given."

    @model_validator(mode="after")
    def _words_fit(self) -> ArithmeticTaskConfig:
        if self.worded and self.operation != "*":
            raise ValueError(
                Text(
                    f"worded = true is of products, operation is {self.operation!r}",
                    f"worded = true 用于乘法，而 operation 为 {self.operation!r}",
                )
            )
        if self.tool and not self.worded:
            raise ValueError(
                Text(f"tool = {self.tool!r} is of worded = true", f"tool = {self.tool!r} 只在 worded = true 时使用")
            )
        return self


class JsonlTaskConfig(TextTaskConfig):
    """A user's data (`data`, or by its older name `jsonl`): JSON Lines, JSON, CSV, Parquet, a saved `datasets` folder,
    or the name of a data set on the Hub."""

    kind: Literal["jsonl", "data"]
    path: str
    "A file (.jsonl .json .csv .tsv .parquet), a folder of them, a folder of datasets' save_to_disk, or a name of the"
    "Hub (owner/name[@revision])."
    split: str = "train"
    "Of a data set that has several."
    subset: str | None = None
    "Configuration of a data set of the Hub."
    prompt_column: str = "prompt"
    "A text, or a list of {role, content} messages."
    pictures: str | tuple[str, ...] = ()
    "Columns that hold pictures, for a policy with [policy.vision]: a path from the data file's folder, bytes, a data"
    "URL, or a list of them. They go to <image> in the prompt, or before its words."
    answer_column: str | None = "answer"
    "Gold answers, where rows have them: demonstrations of supervised stages. Rewards name their own columns."
    held_out_path: str | None = None
    "Evaluation prompts, in any of these forms; a share of `path` where not given."
    held_out_split: str = "test"
    "Of a `held_out_path` that has several."
    held_out_share: float = Field(0.1, gt=0, lt=1)
    "Share of prompts held out, chosen by a hash of the prompt, so that no change of order or seed moves one."
    rewards: Rewards = Field(min_length=1)
    "`[[task.rewards]]`: their weighted sum is the reward."

    @property
    def picture_columns(self) -> tuple[str, ...]:
        """`pictures` as a tuple of names."""
        return (self.pictures,) if isinstance(self.pictures, str) else tuple(self.pictures)


class SourceConfig(Section):
    """`[[task.sources]]`: one task of a mixture."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    "Its measures are eval/NAME/..., its rewards reward/component/NAME.REWARD."
    share: float = Field(1.0, gt=0)
    "Of the prompts, in proportion to the other sources'."
    task: dict[str, Any]
    "`[task.sources.task]`: any text task, with rewards of its own."

    @property
    def section(self) -> Any:
        """The task's own section."""
        return _section(self.task)

    @model_validator(mode="after")
    def _readable(self) -> SourceConfig:
        _section(self.task)
        return self


def _section(task: dict[str, Any]) -> Any:
    kind = kind_of("task", task.get("kind"))
    if kind.form != "text" or task.get("kind") == "mixture":
        raise ValueError(
            Text(
                f"source of kind {task.get('kind')!r}: a mixture is of tasks whose outputs are texts",
                f"source 的 kind 为 {task.get('kind')!r}：混合任务的各部分输出应为文本",
            )
        )
    return resolve(kind.settings).model_validate(task)


class MixtureTaskConfig(Section):
    """Several text tasks in one recipe."""

    kind: Literal["mixture"]
    sources: tuple[SourceConfig, ...] = Field(min_length=1)
    "`[[task.sources]]`: the tasks, each with its share."

    @model_validator(mode="after")
    def _named_apart(self) -> MixtureTaskConfig:
        names = [source.name for source in self.sources]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise ValueError(Text(f"two sources are called {twice[0]!r}", f"两个 source 都叫 {twice[0]!r}"))
        return self


class ReasoningGymTaskConfig(TextTaskConfig):
    """A generated, verifiable data set of reasoning-gym, scored by its own `score_answer`."""

    kind: Literal["reasoning_gym"]
    dataset: str
    "Its name in reasoning-gym."
    parameters: dict[str, Any] = Field(default_factory=dict)
    "The data set's own parameters (min_digits, max_terms ...)."
    weight: float = 1.0
    "Weight of the data set's own score."
    extract: Literal["whole", "tag", "first_word", "last_line", "last_number"] = "whole"
    "What of the output is the answer: all, the text inside <answer>...</answer>, the first word, the last line,"
    "or the last number."
    timeout: float = Field(5.0, gt=0)
    "Seconds a scoring call may take before its worker is killed."
    rewards: Rewards = ()
    "Further rewards, added to the data set's own score."


class VerifiersTaskConfig(TextTaskConfig):
    """The data of a verifiers environment, which also plays and pays: with policy.environment = "verifiers" and the
    same id and arguments in policy.turns.arguments (docs/turns.md)."""

    kind: Literal["verifiers"]
    id: str
    "Of the environment, as the package loads it."
    arguments: dict[str, Any] = Field(default_factory=dict)
    "Of its load_environment; of tasksets the environment's table."
    held_out_share: float = Field(0.1, gt=0, lt=1)
    "Share of its training data that is held out; `held_out` of them at most are asked."
    rewards: Rewards = ()
    "Further rewards, added to what the environment pays."
