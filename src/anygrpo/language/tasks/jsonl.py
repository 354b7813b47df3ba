"""A user's JSON Lines file as a task. Every fault of the data is found before the first step, with its line number."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from pathlib import Path
from typing import Any

from anygrpo.core.task import epoch_indices
from anygrpo.errors import DataError, suggestion
from anygrpo.language.task_settings import JsonlTask
from anygrpo.language.tasks.text import Prompt, TextTask, in_context
from anygrpo.scoring.build import build_rewards, check_value

ROLES = ("system", "user", "assistant", "tool")


class Jsonl(TextTask):
    """Prompts in shuffled passes; held-out prompts from their own file, or a share chosen by a hash of the prompt."""

    def __init__(self, config: JsonlTask, seed: int) -> None:
        super().__init__(config, seed)
        self.config, self.demonstration = config, config.answer_column or ""
        rows = distinct(read_rows(config.path, config.prompt_column), config.path, self.demonstration)
        if config.held_out_path is None:
            train, held_out = self._split(rows)
        else:
            held_rows = read_rows(config.held_out_path, config.prompt_column)
            train, held_out = rows, distinct(held_rows, config.held_out_path, self.demonstration)
            _check_disjoint(train, held_out, config)
        _check_values(train, config.path, config)
        _check_values(held_out, config.held_out_path or config.path, config)
        self._train = [self._prompt(row) for _, row in train]
        self._held_out = [self._prompt(row) for _, row in held_out[: config.held_out]]
        self.size = len(self._train)
        columns = {key for prompt in self._train + self._held_out for key in prompt} - {"prompt"}
        self.judge_by(build_rewards(config.rewards, self.pool, columns), config.accuracy)

    def prompts(self, step: int, count: int) -> list[Prompt]:
        return [self._train[i] for i in epoch_indices(self.size, step, count, self.seed)]

    def held_out(self) -> list[Prompt]:
        return self._held_out

    def _split(self, rows: list[Row]) -> tuple[list[Row], list[Row]]:
        held_out = [row for row in rows if share_of(row[1]["prompt"]) < self.config.held_out_share]
        held_out = sorted(held_out, key=lambda row: share_of(row[1]["prompt"]))[: self.config.held_out]
        lines = {line for line, _ in held_out}
        train = [row for row in rows if row[0] not in lines]
        if not held_out or not train:
            raise DataError(
                f"{self.config.path}: of {len(rows)} prompts {len(held_out)} are held out, {len(train)} are left",
                "give more prompts, task.held_out_path, or another task.held_out_share",
            )
        return train, held_out

    def _prompt(self, row: dict[str, Any]) -> Prompt:
        return row | {"prompt": in_context(self.config, row["prompt"])}


Row = tuple[int, dict[str, Any]]
"""(line number from 1, the object with its prompt under "prompt")."""


def share_of(prompt: Any) -> float:
    """A number in [0, 1) that depends on the prompt alone (sha256 of its JSON)."""
    digest = hashlib.sha256(_key(prompt).encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def _key(prompt: Any) -> str:
    return json.dumps(prompt, sort_keys=True, ensure_ascii=False)


def read_rows(path: str, prompt_column: str) -> list[Row]:
    """The objects of a JSON Lines file, blank lines left out.

    Raises:
        DataError: no file, not UTF-8, a broken line, no object, no or an impossible prompt, no rows at all; with line.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"no data file {path}, looked in {Path.cwd()}", "correct task.path")
    rows: list[Row] = []
    try:
        with file.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    rows.append((number, _row(line, f"{path}, line {number}", prompt_column)))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}", "save it as UTF-8") from None
    if not rows:
        raise DataError(f"{path} holds no rows", "write one JSON object a line")
    return rows


def _row(line: str, where: str, prompt_column: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        detail = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise DataError(f"{where}: broken JSON: {detail}", "write one JSON object a line") from None
    if not isinstance(value, dict):
        raise DataError(f"{where}: a {type(value).__name__}, not an object", "write one JSON object a line")
    if prompt_column not in value:
        raise DataError(
            f"{where}: no column {prompt_column!r}; {suggestion(prompt_column, value)}", "set task.prompt_column"
        )
    prompt = value.pop(prompt_column)
    _check_prompt(prompt, where)
    _check_candidates(value.get("candidates"), where)
    return value | {"prompt": prompt}


def _check_prompt(prompt: Any, where: str) -> None:
    if isinstance(prompt, str) and prompt.strip():
        return
    turns = prompt if isinstance(prompt, list) and prompt else [None]
    for turn in turns:
        good = isinstance(turn, dict) and turn.get("role") in ROLES and isinstance(turn.get("content"), str)
        if not good:
            raise DataError(
                f"{where}: the prompt is {str(prompt)[:60]!r}",
                f"a prompt is a text that is not empty, or a list of {{role, content}} with role {' | '.join(ROLES)}",
            )


def _check_candidates(candidates: Any, where: str) -> None:
    if candidates is None:
        return
    good = isinstance(candidates, list) and all(
        isinstance(c, dict) and isinstance(c.get("text"), str) and _finite(c.get("reward", 0.0)) for c in candidates
    )
    if not good:
        raise DataError(f"{where}: candidates cannot be read", 'write [{"text": "...", "reward": 0.5}, ...]')


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def distinct(rows: list[Row], path: str, answer: str) -> list[Row]:
    """The rows with each prompt once; the first stays, and a warning counts the others.

    Raises:
        DataError: one prompt with two answers; both lines are named.
    """
    first: dict[str, Row] = {}
    for line, row in rows:
        line_before, before = first.setdefault(_key(row["prompt"]), (line, row))
        if answer and before.get(answer) != row.get(answer):
            raise DataError(
                f"{path}: lines {line_before} and {line} hold one prompt with two answers, "
                f"{str(before.get(answer))[:40]!r} and {str(row.get(answer))[:40]!r}",
                "keep one of them",
            )
    if repeated := len(rows) - len(first):
        warnings.warn(f"{path}: {repeated} of {len(rows)} rows repeat a prompt and are left out", stacklevel=4)
    return list(first.values())


def _check_values(rows: list[Row], path: str, config: JsonlTask) -> None:
    """Raises: DataError for the first row with which a reward could give no verdict (unless no row has its column)."""
    for reward in (*config.rewards, *config.evaluation_rewards):
        if not hasattr(reward, "column") or not any(reward.column in row for _, row in rows):
            continue
        for line, row in rows:
            if (fault := check_value(reward, row.get(reward.column), row)) is not None:
                raise DataError(f"{path}, line {line}: {fault}", "mend or remove that row")


def _check_disjoint(train: list[Row], held_out: list[Row], config: JsonlTask) -> None:
    lines = {_key(row["prompt"]): line for line, row in train}
    both = [(lines[_key(row["prompt"])], line) for line, row in held_out if _key(row["prompt"]) in lines]
    if both:
        raise DataError(
            f"{len(both)} held-out prompts are also in training: line {both[0][1]} of {config.held_out_path} is line "
            f"{both[0][0]} of {config.path}",
            "remove them from one file, or leave out task.held_out_path to have the data split",
        )


build = Jsonl
"""build(config, seed) of this kind."""
