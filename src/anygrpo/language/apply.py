"""A trained policy put to use: prompts in, answers out, a line of JSON each; what is there is not made again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anygrpo.core.applied import add_rows, kept_rows, made_by
from anygrpo.errors import DataError
from anygrpo.files import lines_of
from anygrpo.language.policy import CausalLM
from anygrpo.language.tasks.answer import Answer
from anygrpo.language.tasks.data import FILES, read_rows
from anygrpo.language.tasks.pictures import USUAL
from anygrpo.language.tasks.rows import Columns, row_of
from anygrpo.spoken import Text

Progress = Callable[[int, int], None]
"""Called with (prompts done, prompts in all)."""

BATCH = 16
"""Prompts answered together."""


def apply(
    policy: CausalLM,
    inputs: Any,
    out: str | Path | None = None,
    *,
    seed: int | None = None,
    samples: int = 1,
    prompt_column: str = "prompt",
    pictures: str | None = None,
    recipe: Any = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Answers to prompts: [{index, prompt, outputs, ended, tokens, of}]; `of`: what made them (weights, settings).

    Args:
        inputs: a text, a list of texts, messages or records, or the path of a data file; of a .txt file each line that
            is not empty is a prompt.
        out: a .jsonl file written as answers come; rows that it holds are kept and not made again.
        seed: samples drawn from it, prompt by prompt (a prompt's answers do not depend on the others); None: the
            likeliest answer.
        samples: answers a prompt, where they are drawn.
        pictures: the column of pictures, for a policy that sees; None: the recipe's, else "image" or "images".
        recipe: of the run that `policy` is of.

    Raises:
        DataError: no such file, or an `out` that holds answers to other prompts, or of other weights or settings.
    """
    records = read_inputs(inputs, prompt_column, _columns(policy, pictures, recipe))
    file = None if out is None else Path(out)
    drawn = {} if seed is None else {"seed": seed, "samples": samples, "at": _sampling(policy)}
    of = made_by(policy, model=policy.config.model, longest=policy.config.max_new_tokens, **drawn)
    rows = kept_rows(file, of, [json.loads(json.dumps(_asked(r))) for r in records], "prompt")
    for start in range(len(rows), len(records), BATCH):
        part = records[start : start + BATCH]
        made = _answers(policy, part, start, seed, samples)
        add_rows(file, made, of)
        rows += made
        if progress is not None:
            progress(len(rows), len(records))
    return rows


def _columns(policy: CausalLM, named: str | None, recipe: Any) -> Columns:
    """The columns of pictures: the one that was named; else, for a policy that sees, those of the recipe that a row
    has, or its "image" and "images". A row without any is a text."""
    if named is not None or policy.prompts.pictures is None:
        return () if named is None else (named,)
    trained: tuple[str, ...] = getattr(getattr(recipe, "task", None), "picture_columns", ())

    def of(row: dict[str, Any]) -> tuple[str, ...]:
        return tuple(n for n in trained if n in row) or tuple(n for n in USUAL if row.get(n))

    return of


def read_inputs(inputs: Any, prompt_column: str, pictures: Columns = ()) -> list[Any]:
    """Prompt records of what a person gives, pictures of these columns in their places."""
    if isinstance(inputs, Path) or (isinstance(inputs, str) and _is_file(inputs)):
        file = Path(inputs)
        if file.suffix in FILES or file.is_dir():
            return [row for _, row in read_rows(str(file), prompt_column, pictures=pictures)]
        if not file.is_file():
            raise DataError(
                Text(f"no file {file}, looked in {Path.cwd()}", f"没有文件 {file}，查找位置 {Path.cwd()}"),
                Text("correct the path", "请改正路径"),
            )
        try:
            lines = lines_of(file.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            raise DataError(
                Text(f"{file} is not UTF-8 text: {error.reason}", f"{file} 不是 UTF-8 文本：{error.reason}"),
                Text("save it as UTF-8", "请存为 UTF-8"),
            ) from None
        inputs = [line for line in lines if line.strip()]
    if isinstance(inputs, str) or (isinstance(inputs, list) and inputs and _is_message(inputs[0])):
        inputs = [inputs]
    records = [r if isinstance(r, dict) and "prompt" in r else {"prompt": r} for r in inputs]
    if pictures:
        # A text or messages alone have no columns.
        rows = zip(inputs, records)
        records = [row_of(r, f"input {n}", "prompt", pictures) if r is i else r for n, (i, r) in enumerate(rows)]
    if not records:
        raise DataError(Text("there is no prompt", "没有提示"), Text("give at least one", "请至少给出一个"))
    return records


def _is_file(text: str) -> bool:
    try:
        return "\n" not in text and Path(text).exists()
    except OSError:
        return False


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and "role" in value


def _sampling(policy: CausalLM) -> list[float]:
    return [policy.temperature, policy.top_p, policy.top_k, policy.min_p]


def _asked(record: Any) -> Any:
    return record["prompt"]


def _answers(policy: CausalLM, part: list[Any], start: int, seed: int | None, samples: int) -> list[dict[str, Any]]:
    """Rows of these prompts. A drawn answer is a function of (seed, number of the prompt) alone."""
    if seed is None:
        rollouts = [policy.greedy(part)]
    else:
        rollouts = [policy.sample([record], samples, seed * 1_000_003 + start + i) for i, record in enumerate(part)]
    rows = []
    for rollout in rollouts:
        outputs, tokens = policy.decode(rollout.samples), rollout.mask.sum(-1).tolist()
        for p, row in enumerate(outputs):
            record = part[len(rows)]
            made = {
                "index": start + len(rows),
                "prompt": _asked(record),
                "outputs": [str(text) for text in row],
                "ended": rollout.ended[p].tolist(),
                "tokens": tokens[p],
            }
            if any(isinstance(text, Answer) for text in row):
                made["messages"] = [text.messages if isinstance(text, Answer) else None for text in row]
            rows.append(made)
    return rows
