"""reasoning-gym data sets by name, and their own `score_answer` as a reward. No torch here: workers load this
file, and the import stands at its top, so that it counts as loading and not as the time of the first call."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from enum import Enum
from typing import Any

import reasoning_gym
from reasoning_gym.factory import DATASETS

from anygrpo.errors import ConfigError, suggestion
from anygrpo.scoring.builtin import last_number
from anygrpo.spoken import Text

ENDLESS = 2**30
"""Size told to the generator: items are made one by one from seed + index, so size costs nothing."""


def create(dataset: str, parameters: dict[str, Any], seed: int) -> Any:
    """The reasoning-gym data set, with errors that name the cure.

    Raises:
        ConfigError: an unknown data set or parameter, or parameters it refuses.
    """
    if dataset not in DATASETS:
        raise ConfigError(
            Text(
                f"reasoning-gym has no data set {dataset!r}; {suggestion(dataset, DATASETS)}",
                f"reasoning-gym 没有数据集 {dataset!r}；{suggestion(dataset, DATASETS)}",
            )
        )
    known = {name for name in DATASETS[dataset][1].__dataclass_fields__ if name not in ("seed", "size")}
    if wrong := sorted(set(parameters) - known):
        raise ConfigError(
            Text(
                f"data set {dataset!r} has no parameter {wrong[0]!r}; {suggestion(wrong[0], known)}",
                f"数据集 {dataset!r} 没有参数 {wrong[0]!r}；{suggestion(wrong[0], known)}",
            )
        )
    try:
        made = reasoning_gym.create_dataset(dataset, seed=seed, size=ENDLESS, **_typed(dataset, parameters))
        made[0]  # some parameters are refused only when a question is made
        return made
    except Exception as error:
        raise ConfigError(
            Text(
                f"data set {dataset!r} refuses its parameters {parameters}: {type(error).__name__}: {error}",
                f"数据集 {dataset!r} 拒绝它的参数 {parameters}：{type(error).__name__}: {error}",
            ),
            Text("correct task.parameters", "请改正 task.parameters"),
        ) from None


def _typed(dataset: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """A recipe's texts as members of an enumeration, where the data set's default is a list of such members."""
    usual = DATASETS[dataset][1]()
    typed = dict(parameters)
    for name, value in parameters.items():
        held = getattr(usual, name)
        if isinstance(held, (list, tuple)) and held and isinstance(held[0], Enum):
            typed[name] = [type(held[0])(x) for x in value]
    return typed


@functools.lru_cache(8)
def _scorer(dataset: str, parameters: str) -> Any:
    return create(dataset, json.loads(parameters), 0)


def last_tagged(text: str, begin: str, end: str) -> str:
    """What stands between the last pair of tags, "" where there is none. Reads the text once."""
    at, last = text.find(begin), ""
    while at >= 0 and (stop := text.find(end, at + len(begin))) >= 0:
        last = text[at + len(begin) : stop]
        at = text.find(begin, stop + len(end))
    return last


def extract_answer(output: str, how: str) -> str:
    """The part of an output that is the answer; "" where there is none."""
    if how == "tag":
        return last_tagged(output, "<answer>", "</answer>").strip()
    if how == "first_word":
        found = re.search(r"\w+", output)
        return found[0] if found else ""
    if how == "last_line":
        return output.strip().rpartition("\n")[2].strip()
    if how == "last_number":
        return last_number(output) or ""
    return output.strip()


def score(
    prompts: Sequence[Any],
    outputs: Sequence[str],
    entry: Sequence[dict[str, Any]],
    dataset: str,
    parameters: dict[str, Any],
    extract: str,
) -> list[float | None]:
    """`score_answer` of the data set for each output. Called in a worker, which keeps the data set."""
    source = _scorer(dataset, json.dumps(parameters, sort_keys=True))
    return [float(source.score_answer(extract_answer(o, extract), e)) for o, e in zip(outputs, entry, strict=True)]
