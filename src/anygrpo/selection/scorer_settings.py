"""Recipe sections of scorers: what says how good demonstrations are for a query."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from anygrpo.recipe.section import Section


class _ScorerConfig(Section):
    """What all scorers share. Judgements are kept on disk, by the hash of all they depend on."""

    cache: str | None = None
    "SQLite file of judgements; none: in the user's cache folder."
    budget: int | None = Field(None, ge=0)
    "Most new calls of a process; what comes after is invalid, with that reason. none: no limit."


class PythonScorerConfig(_ScorerConfig):
    """A function `judge(query, demonstrations) -> score` of a Python file."""

    kind: Literal["python"]
    function: str
    """path.py:name. It takes the query's row and a list of candidates' rows, and returns a number, True or False, or a
    table of parts ({"correct": 1, "gt_prob": 0.8}); None: it could not be judged."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    "Further keyword arguments; judgements made with others are not reused."
    version: str = ""
    "Change it when the function changes its mind: judgements under another version are not reused."
    batch: int = Field(1, ge=1)
    """Judged in one call. Above 1 the function takes a list of queries and one of each query's demonstrations, and
    returns a list."""
    concurrency: int = Field(1, ge=1)
    "Calls at once, in threads; of an async function, awaited side by side."
    retries: int = Field(0, ge=0)
    "Further tries of a call that raised."


class _PromptedConfig(_ScorerConfig):
    instruction: str = ""
    "Stands first in the prompt."
    template: str | None = None
    """File of a Jinja template with `instruction`, `demonstrations` (rows), `query` (a row without its answer) and
    `labels`; `<image>` stands where a picture goes. none: question and answer, one after the other."""
    labels: tuple[str, ...] = ()
    "Answers to choose from."
    match: Literal["exact", "contains", "vqa"] = "exact"
    """How a generated answer is compared: exact (case and punctuation aside), contains (the answer stands in it), vqa
    (min(1, agreeing annotators / 3) where the row has several answers)."""


class ModelScorerConfig(_PromptedConfig):
    """A frozen transformers model."""

    kind: Literal["model"]
    model: str = "smollm2"
    "smollm2, a path, or a Hub name."
    vision: bool = False
    "A vision-language model; rows have `image` (a file)."
    method: Literal["labels", "answer", "generation"] = "labels"
    """labels: the likeliest of `labels` (or of the query's `choices`). answer: whether greedy decoding says the answer,
    in one pass, and its probability. generation: what it says, compared by `match`."""
    max_new_tokens: int = Field(8, ge=1)
    "Longest answer (method = generation)."
    dtype: Literal["float32", "bfloat16"] = "float32"
    "Type that it computes in."
    batch_size: int = Field(16, ge=1)
    "Prompts a forward pass."


class EndpointScorerConfig(_PromptedConfig):
    """A model behind an OpenAI-compatible endpoint; pictures go as data URLs."""

    kind: Literal["endpoint"]
    url: str
    'Without "/chat/completions".'
    model: str
    "The endpoint's name of it."
    key_env: str = "OPENAI_API_KEY"
    "Environment variable of the key."
    max_tokens: int = Field(16, ge=1)
    "Longest answer."
    concurrency: int = Field(8, ge=1)
    "Questions under way at once."
    retries: int = Field(3, ge=0)
    "Tries after the first."
    timeout: float = Field(120.0, gt=0)
    "Seconds for one question, retries included."
    per_minute: float = Field(0.0, ge=0)
    "Most requests a minute; 0: no limit."


Scorer = Annotated[PythonScorerConfig | ModelScorerConfig | EndpointScorerConfig, Field(discriminator="kind")]
