"""Queries and candidates of one's own, judged by one's own scorer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from anygrpo.core.task import Stored, epoch_indices
from anygrpo.errors import ConfigError, DataError
from anygrpo.files import cache_folder, json_value, lines_of
from anygrpo.models.embedding import embed
from anygrpo.selection.file_settings import JudgedConfig
from anygrpo.selection.rewards import NEEDS, PARTS, reward
from anygrpo.selection.scorers import build
from anygrpo.selection.scorers.scorer import Row, Shown
from anygrpo.selection.tables import Table, read_table
from anygrpo.selection.task import Prompt, Selection, SelectionTask, nearest
from anygrpo.spoken import Text

_SPLIT = 0


class Judged(SelectionTask):
    """Prompts: "id", "query" [d], "candidates" [M, d], "ids" (of the pool), "row" and "rows" (what the scorer is
    shown), "excluded". A pool is the query's nearest candidates, or all of them."""

    why_invalid = "the scorer could not judge it"

    def __init__(self, config: JudgedConfig, seed: int) -> None:
        self.config, self.seed, self.reward = config, seed, config.reward
        self.shots, self.reward_shots = config.shots, config.reward_shots
        self.queries, self.candidates = read_rows(config.queries), read_rows(config.candidates)
        self.scorer = build.build(config.scorer, cache_folder() / "judgements.sqlite")
        self._of_queries = _features(config.query_features, self.queries, config.embedding, "task.query_features")
        self._of_candidates = _features(
            config.candidate_features, self.candidates, config.embedding, "task.candidate_features"
        )
        if self._of_queries.width != self._of_candidates.width:
            raise DataError(
                Text(
                    f"queries have {self._of_queries.width} features, candidates {self._of_candidates.width}",
                    f"查询有 {self._of_queries.width} 个特征，候选有 {self._of_candidates.width} 个",
                ),
                Text("one encoder for both: the policy compares them", "两者应使用同一编码器：策略要比较它们"),
            )
        self._all = self._of_candidates.of(self.candidates, Text("a candidate", "候选"))
        self._names = list(self.candidates)
        self.train, self.validation = self._split()
        self.size = len(self.train)
        self.reasons: dict[str, int] = {}
        self._given: set[str] = set()  # where nothing could be judged, the parts that others had are unknown

    def prompts(self, step: int, count: int) -> list[Prompt]:
        return [self.prompt(self.train[i]) for i in epoch_indices(self.size, step, count, self.seed)]

    def held_out(self) -> list[Prompt]:
        return [self.prompt(name) for name in self.validation]

    def prompt(self, name: str, pool: list[Any] | None = None) -> Prompt:
        """The query with this id (or the n-th training query: "train-n"), over a pool of given ids, or its own.

        Raises:
            DataError: an unknown query or candidate.
        """
        if name not in self.queries and name.startswith("train-") and name[6:].isdigit():
            name = self.train[int(name[6:])]
        if name not in self.queries:
            raise DataError(
                Text(f"{self.config.queries} holds no query {name!r}", f"{self.config.queries} 中没有查询 {name!r}")
            )
        query = self._of_queries.of([name], Text(f"query {name!r}", f"查询 {name!r}"))[0]
        ids = self._pool(query) if pool is None else [str(i) for i in pool]
        if missing := [i for i in ids if i not in self.candidates]:
            raise DataError(
                Text(
                    f"{self.config.candidates} holds no candidate {missing[0]!r} (query {name!r})",
                    f"{self.config.candidates} 中没有候选 {missing[0]!r}（查询 {name!r}）",
                )
            )
        own = self.config.ids == "one" and name in ids
        return {
            "id": name,
            "query": query,
            "candidates": self._all
            if ids is self._names
            else self._of_candidates.of(ids, Text(f"a candidate of {name!r}", f"{name!r} 的候选")),
            "ids": ids,
            "row": self.queries[name],
            "rows": [self.candidates[i] for i in ids],
            "excluded": [ids.index(name)] if own else [],
        }

    def judge(self, prompts: list[Prompt], selections: list[list[Selection]]) -> dict[str, Tensor]:
        """What the scorer says; NaN where it gave a reason in place of a score (counted in `reasons`)."""
        shown = [
            Shown(p["row"], tuple(p["rows"][i] for i in selection))
            for p, row in zip(prompts, selections)
            for selection in row
        ]
        found = self.scorer.judge(shown)
        for one in found:
            if isinstance(one, str):
                self.reasons[one] = self.reasons.get(one, 0) + 1
        given = {name for one in found if isinstance(one, dict) for name in one}
        self._given |= given
        names = [name for name in PARTS if name in self._given] or list(NEEDS[self.reward.mode])
        shape = (len(prompts), len(selections[0]))
        rows = {n: [one.get(n, torch.nan) if isinstance(one, dict) else torch.nan for one in found] for n in names}
        self.why_invalid = next(reversed(self.reasons), type(self).why_invalid)
        return {name: torch.tensor(values).view(shape) for name, values in rows.items()}

    def stored(self, prompts: list[Prompt]) -> Stored:
        """One list a query: its nearest neighbours, nearest last."""
        actions: list[list[Any]] = [[nearest(p, self.shots)[::-1]] for p in prompts]
        parts = self.judge(prompts, actions)
        ragged = {name: part.nan_to_num().tolist() for name, part in parts.items()}
        return Stored(actions, reward(parts, self.reward).nan_to_num().tolist(), None, ragged)

    def close(self) -> None:
        self.scorer.close()

    def _pool(self, query: Tensor) -> list[str]:
        """Ids of the `pool` nearest candidates (in the file's order), or of all."""
        size = self.config.pool
        if not size or size >= len(self._names):
            return self._names
        near = (F.normalize(self._all, dim=-1) @ F.normalize(query, dim=-1)).topk(size).indices
        return [self._names[i] for i in sorted(near.tolist())]

    def _split(self) -> tuple[list[str], list[str]]:
        names = list(self.queries)
        order = torch.randperm(len(names), generator=torch.Generator().manual_seed(_SPLIT)).tolist()
        held = round(self.config.held_out_share * len(names))
        train = [names[i] for i in order[held:]]
        if not train:
            raise ConfigError(
                Text(
                    f"held_out_share = {self.config.held_out_share} leaves none of {len(names)} queries to train on",
                    f"held_out_share = {self.config.held_out_share} 使 {len(names)} 个查询中没有可训练的",
                )
            )
        return train, [names[i] for i in order[:held]]


def read_rows(path: str) -> dict[str, Row]:
    """Rows of a JSONL (or JSON list) file by id; without `id` their number.

    Raises:
        DataError: no such file, a line that is no object, an id given twice.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(
            Text(f"no rows at {path}", f"{path} 处没有数据"),
            Text(
                'JSONL with "id", "question" or "text", "answer" or "label", "image"',
                '应为含 "id"、"question" 或 "text"、"answer" 或 "label"、"image" 的 JSONL',
            ),
        )
    text = file.read_text(encoding="utf-8")
    try:
        rows = (
            json_value(text) if text.lstrip().startswith("[") else [json_value(x) for x in lines_of(text) if x.strip()]
        )
    except ValueError as error:
        raise DataError(
            Text(f"{path} is neither JSONL nor a JSON list: {error}", f"{path} 既不是 JSONL，也不是 JSON 列表：{error}")
        ) from None
    out: dict[str, Row] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise DataError(Text(f"{path}: row {number} is no object", f"{path}：第 {number} 行不是对象"))
        name = str(row.get("id", number))
        if name in out:
            raise DataError(
                Text(f"{path} holds id {name!r} twice", f"{path} 中编号 {name!r} 出现两次"),
                Text("one row an id", "每个编号一行"),
            )
        out[name] = {"id": name} | row
    if not out:
        raise DataError(Text(f"{path} holds no rows", f"{path} 中没有任何行"))
    return out


def _features(path: str | None, rows: dict[str, Row], embedding: str, setting: str) -> Table:
    if path is not None:
        return read_table(path)
    texts = [str(row.get("question") or row.get("text") or "") for row in rows.values()]
    if not all(texts):
        raise DataError(
            Text("some row has neither question nor text to embed", "有一行既没有问题也没有可嵌入的文本"),
            Text(f"give embeddings: {setting}", f"请给出嵌入：{setting}"),
        )
    return Table("the embedded texts", {name: i for i, name in enumerate(rows)}, embed(texts, embedding))
