"""A policy of the user's own put to use: prompts in, outputs out, a line of JSON each; rows that are there stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from anygrpo.core.applied import add_rows, kept_rows, made_by
from anygrpo.core.policy import Policy
from anygrpo.errors import DataError
from anygrpo.files import json_value, lines_of
from anygrpo.spoken import Text

BATCH = 16
"""Prompts taken together."""


def apply(
    policy: Policy,
    inputs: Any,
    out: str | Path | None = None,
    *,
    seed: int | None = None,
    samples: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Outputs for prompts: [{index, prompt, outputs, of}]; `of`: what made them (weights, settings).

    Args:
        inputs: a list of prompts as the policy takes them, or one; or a file: of .jsonl a prompt a line, of .json a
            list, of any other each line that is not empty, as a text.
        out: a .jsonl file written as outputs come; rows that it holds are kept and not made again.
        seed: samples drawn from it, prompt by prompt; None: the policy's `greedy`.
        samples: outputs a prompt, where they are drawn.

    Raises:
        DataError: no such file, or an `out` that holds outputs for other prompts, or of other weights or settings.
        ConfigError: no seed, and the policy has no `greedy`.
    """
    prompts = _prompts(inputs)
    file = None if out is None else Path(out)
    of = made_by(policy, **({} if seed is None else {"seed": seed, "samples": samples}))
    rows = kept_rows(file, of, [_plain(prompt) for prompt in prompts], "prompt")
    for start in range(len(rows), len(prompts), BATCH):
        part = prompts[start : start + BATCH]
        made = [
            {"index": start + i, "prompt": _plain(prompt), "outputs": _plain(outputs)}
            for i, (prompt, outputs) in enumerate(zip(part, _outputs(policy, part, start, seed, samples)))
        ]
        add_rows(file, made, of)
        rows += made
        if progress is not None:
            progress(len(rows), len(prompts))
    return rows


def _outputs(policy: Policy, part: list[Any], start: int, seed: int | None, samples: int) -> list[list[Any]]:
    """[P][G]; a drawn output is a function of (seed, number of the prompt) alone."""
    if seed is None:
        return policy.decode(policy.greedy(part).samples)
    drawn = (policy.sample([prompt], samples, seed * 1_000_003 + start + i) for i, prompt in enumerate(part))
    return [policy.decode(rollout.samples)[0] for rollout in drawn]


def _prompts(inputs: Any) -> list[Any]:
    """The prompts that a person gives."""
    if isinstance(inputs, Path):
        inputs = _read(inputs)
    prompts = inputs if isinstance(inputs, list) else [inputs]
    if not prompts:
        raise DataError(Text("there is no prompt", "没有提示"), Text("give at least one", "请至少给出一个"))
    return prompts


def _read(file: Path) -> list[Any]:
    if not file.is_file():
        raise DataError(
            Text(f"no file {file}, looked in {Path.cwd()}", f"没有文件 {file}，查找位置 {Path.cwd()}"),
            Text("correct the path", "请改正路径"),
        )
    try:
        text = file.read_text(encoding="utf-8-sig")
        if file.suffix == ".json":
            found = json_value(text)
            return found if isinstance(found, list) else [found]
        lines = [line for line in lines_of(text) if line.strip()]
        return [json_value(line) for line in lines] if file.suffix == ".jsonl" else lines
    except ValueError as error:
        raise DataError(
            Text(f"{file} cannot be read: {error}", f"{file} 无法读取：{error}"),
            Text("a JSON value a line (.jsonl), or texts (.txt)", "每行一个 JSON 值（.jsonl），或文本（.txt）"),
        ) from None


def _plain(value: Any) -> Any:
    """As JSON holds it: tensors as lists, what has no form there as its text."""
    return json.loads(json.dumps(value, default=lambda x: x.tolist() if isinstance(x, Tensor) else str(x)))
