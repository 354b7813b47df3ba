"""A user's data as a task. Every fault of the data is found before the first step, with its line or row."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from pathlib import Path
from typing import Any

from anygrpo.core.task import epoch_indices
from anygrpo.errors import DataError
from anygrpo.language.task_settings import JsonlTaskConfig
from anygrpo.language.tasks.data import Row, home_of, place, read_rows
from anygrpo.language.tasks.pictures import references
from anygrpo.language.tasks.text import Prompt, TextTask, in_context
from anygrpo.scoring.build import build_rewards, check_value
from anygrpo.spoken import Text


class Jsonl(TextTask):
    """Prompts in shuffled passes; held-out prompts from their own file, or a share chosen by a hash of the prompt."""

    def __init__(self, config: JsonlTaskConfig, seed: int) -> None:
        super().__init__(config, seed)
        self.config, self.demonstration = config, config.answer_column or ""
        shown = config.picture_columns
        rows_of = lambda path, split: read_rows(path, config.prompt_column, split, config.subset, shown)  # noqa: E731
        read = lambda path, split: distinct(rows_of(path, split), path)  # noqa: E731
        rows = read(config.path, config.split)
        if config.held_out_path is None:
            train, held_out = self._split(rows)
        else:
            train, held_out = rows, read(config.held_out_path, config.held_out_split)
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
        home = home_of(self.config.path)
        share = {number: share_of(row["prompt"], home) for number, row in rows}
        held_out = [row for row in rows if share[row[0]] < self.config.held_out_share]
        held_out = sorted(held_out, key=lambda row: share[row[0]])[: self.config.held_out]
        taken = {_key(row["prompt"]) for _, row in held_out}  # a prompt is on one side alone, whatever its rows
        train = [row for row in rows if _key(row[1]["prompt"]) not in taken]
        if not held_out or not train:
            raise DataError(
                Text(
                    f"{self.config.path}: of {len(rows)} prompts {len(held_out)} are held out, {len(train)} are left",
                    f"{self.config.path}：{len(rows)} 个提示中留出 {len(held_out)} 个，余下 {len(train)} 个",
                ),
                _other_share(list(share.values()))
                + Text("give more prompts, or task.held_out_path", "请增加提示，或给出 task.held_out_path"),
            )
        return train, held_out

    def _prompt(self, row: dict[str, Any]) -> Prompt:
        return row | {"prompt": in_context(self.config, row["prompt"])}


def _other_share(shares: list[float]) -> Text:
    """The least share that holds a row out, to two digits; nothing where it is none or leaves none to train on."""
    least = math.floor(min(shares, default=1.0) * 100 + 1) / 100
    count = sum(share < least for share in shares)
    if count == len(shares) or least > 0.5:
        return Text("", "")
    return Text(
        f"task.held_out_share = {least:g} holds {'one' if count == 1 else count} out; or ",
        f"task.held_out_share = {least:g} 可留出 {count} 个；或",
    )


def share_of(prompt: Any, home: Path | None = None) -> float:
    """A number in [0, 1) that depends on the prompt alone (sha256 of its JSON).

    Args:
        home: files of pictures below this folder count by their place in it: moving the data moves no prompt.
    """
    key = _key(prompt)
    if home is not None and home != Path() and references(prompt):
        key = key.replace(json.dumps(f"{home}/")[1:-1], "")
    digest = hashlib.sha256(key.encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def _key(prompt: Any) -> str:
    return json.dumps(prompt, sort_keys=True, ensure_ascii=False, default=str)


def distinct(rows: list[Row], path: str) -> list[Row]:
    """Each row once, the first of those that are the same in every column; a warning counts the others."""
    first: dict[str, Row] = {}
    for number, row in rows:
        first.setdefault(_key(row), (number, row))
    if repeated := len(rows) - len(first):
        warnings.warn(f"{path}: {repeated} of {len(rows)} rows repeat another and are left out", stacklevel=4)
    return list(first.values())


def _check_values(rows: list[Row], path: str, config: JsonlTaskConfig) -> None:
    """Raises: DataError for the first row with which a reward could give no verdict (unless no row has its column)."""
    for reward in (*config.rewards, *config.evaluation_rewards):
        column = getattr(reward, "column", None)
        if column is None or not any(column in row for _, row in rows):
            continue
        for line, row in rows:
            if (fault := check_value(reward, row.get(column), row)) is not None:
                raise DataError(
                    Text(f"{place(path, line)}: {fault}", f"{place(path, line)}：{fault}"),
                    Text("mend or remove that row", "请修正或删除那一行"),
                )


def _check_disjoint(train: list[Row], held_out: list[Row], config: JsonlTaskConfig) -> None:
    lines = {_key(row["prompt"]): line for line, row in train}
    both = [(lines[_key(row["prompt"])], line) for line, row in held_out if _key(row["prompt"]) in lines]
    if both:
        raise DataError(
            Text(
                f"{len(both)} held-out prompts are also in training: "
                f"{place(config.held_out_path or '', both[0][1])} is "
                f"{place(config.path, both[0][0])}",
                f"有 {len(both)} 个留出提示也在训练集中：{place(config.held_out_path or '', both[0][1])} 就是 "
                f"{place(config.path, both[0][0])}",
            ),
            Text(
                "remove them from one file, or leave out task.held_out_path to have the data split",
                "请从其中一个文件中删除，或去掉 task.held_out_path，由数据自行划分",
            ),
        )


build = Jsonl
"""build(config, seed) of this kind."""
