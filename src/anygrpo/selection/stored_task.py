"""Offline training from a file of scored candidates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.build import build_task
from anygrpo.core.task import Stored, epoch_indices
from anygrpo.errors import ConfigError, DataError
from anygrpo.selection.layouts import read_stored
from anygrpo.selection.rewards import NEEDS, PARTS, reward
from anygrpo.selection.settings import StoredCandidatesConfig
from anygrpo.selection.stored_query import Candidate, StoredQuery
from anygrpo.selection.task import Prompt, Selection, SelectionTask

_SPLIT = 0


class StoredCandidates(SelectionTask):
    """Prompts are the file's queries. What the file does not hold is judged by the live task, where one is named."""

    why_invalid = "not among the stored candidates, and no live task to judge it"

    def __init__(self, config: StoredCandidatesConfig, seed: int) -> None:
        self.config, self.seed, self.reward = config, seed, config.reward
        queries = [self._filtered(q) for q in read_stored(config.file, config.index).queries]
        self.by_id = {q.id: q for q in queries if q.candidates}
        if not self.by_id:
            raise DataError(
                f"{config.file}: no candidate is left after filters", "loosen methods or min_score_when_wrong"
            )
        self._check_parts()
        self.shots = max(len(c.selection) for q in self.by_id.values() for c in q.candidates)
        self.live = None if config.live is None else _build_live(config, self.shots)
        self._features = None if config.features is None else _read_features(Path(config.features))
        self.train, self.validation = self._split()
        self.size = len(self.train)
        self._made: dict[str, Prompt] = {}

    def prompts(self, step: int, count: int) -> list[Prompt]:
        return [self.prompt(self.train[i]) for i in epoch_indices(self.size, step, count, self.seed)]

    def held_out(self) -> list[Prompt]:
        """The live task's held-out queries, or the validation share of the file."""
        return self.live.held_out() if self.live else [self.prompt(name) for name in self.validation]

    def stored(self, prompts: list[Prompt]) -> Stored:
        queries = [self.by_id[p["id"]] for p in prompts]
        actions: list[list[Any]] = [[c.selection for c in q.candidates] for q in queries]
        parts = [{n: torch.tensor([c.parts[n] for c in q.candidates]) for n in self.parts} for q in queries]
        log_probs = [[c.propensity for c in q.candidates] for q in queries] if self.config.propensities else None
        components = {name: [row[name].tolist() for row in parts] for name in self.parts}
        costs = [self.reward.per_shot * torch.tensor([len(a) for a in row]) for row in actions]
        rewards = [(reward(row, self.reward) - cost).tolist() for row, cost in zip(parts, costs)]
        return Stored(actions, rewards, log_probs, components)

    def judge(self, prompts: list[Prompt], selections: list[list[Selection]]) -> dict[str, Tensor]:
        """By the live task; without one, by looking the selection up (its order counts, then its set)."""
        if self.live:
            return self.live.judge(prompts, selections)
        out = {name: torch.full((len(prompts), max(map(len, selections))), torch.nan) for name in self.parts}
        for p, (prompt, row) in enumerate(zip(prompts, selections)):
            by_order = {c.selection: c for c in self.by_id[prompt["id"]].candidates}
            by_set = {frozenset(s): c for s, c in reversed(by_order.items())}
            for g, selection in enumerate(row):
                found = by_order.get(selection) or by_set.get(frozenset(selection))
                for name in self.parts if found else ():
                    out[name][p, g] = found.parts[name]  # type: ignore[union-attr]
        return out

    def measure(self, prompts: list[Prompt], outputs: list[list[Selection]]) -> dict[str, float]:
        if self.live:
            return super().measure(prompts, outputs)
        parts = self.judge(prompts, [[tuple(o[: self.shots]) for o in row] for row in outputs])
        found = torch.isfinite(next(iter(parts.values())))
        row = {"eval/in_support": float(found.float().mean())}
        if "correct" in parts and found.any():
            row["eval/accuracy"] = float(parts["correct"][found].mean())
        return row

    def prompt(self, name: str) -> Prompt:
        """The query called `name` with features of itself and its pool.

        Raises:
            DataError: an id without features, or a pool that is not the live task's.
        """
        if name not in self._made:
            query = self.by_id[name]
            self._made[name] = self._from_live(query) if self._features is None else self._from_features(query)
        return self._made[name]

    def _from_live(self, query: StoredQuery) -> Prompt:
        prompt = self.live.prompt(query.id)  # type: ignore[union-attr]
        if [str(i) for i in prompt["ids"]] != [str(i) for i in query.pool]:
            raise DataError(
                f"query {query.id!r}: the file's pool of {len(query.pool)} is not the live task's of "
                f"{len(prompt['ids'])}",
                "use the task section that the file was generated with",
            )
        return prompt

    def _from_features(self, query: StoredQuery) -> Prompt:
        index, table = self._features  # type: ignore[misc]
        missing = [i for i in (query.id, *query.pool) if str(i) not in index]
        if missing:
            raise DataError(f"{self.config.features} holds no embedding of {missing[0]!r} (query {query.id!r})")
        rows = torch.tensor([index[str(i)] for i in query.pool])
        excluded = [i for i, name in enumerate(query.pool) if str(name) == query.id]
        return {
            "id": query.id,
            "query": table[index[query.id]],
            "candidates": table[rows],
            "ids": list(query.pool),
            "excluded": excluded,
        }

    def _filtered(self, query: StoredQuery) -> StoredQuery:
        c = self.config

        def wanted(x: Candidate) -> bool:
            poor = x.parts.get("correct") == 0 and x.parts.get("accuracy_score", 0.0) < c.min_score_when_wrong
            return not x.failed and not poor and (not c.methods or x.method in c.methods)

        return replace(query, candidates=tuple(x for x in query.candidates if wanted(x)))

    def _check_parts(self) -> None:
        every = [c for q in self.by_id.values() for c in q.candidates]
        self.parts = [name for name in PARTS if all(name in c.parts for c in every)]
        reward({name: torch.zeros(1) for name in self.parts}, self.reward)  # refuses a mode these data don't allow
        missing = sum(c.propensity is None for c in every)
        if self.config.propensities and missing:
            raise ConfigError(
                f"propensities = true, but {missing} of {len(every)} candidates have none (beams and retrieval are "
                "deterministic; a log-probability above 0 is none)",
                'methods = ["sample"], or propensities = false',
            )
        if self.config.queries == "positive" and "correct" not in self.parts:
            raise ConfigError('queries = "positive" needs vqa_correct, which this file lacks', 'queries = "all"')

    def _split(self) -> tuple[list[str], list[str]]:
        names = list(self.by_id)
        order = torch.randperm(len(names), generator=torch.Generator().manual_seed(_SPLIT)).tolist()
        held = 0 if self.live else round(self.config.validation * len(names))
        validation, train = [names[i] for i in order[:held]], [names[i] for i in order[held:]]
        if self.config.queries == "positive":
            train = [name for name in train if self.by_id[name].positive]
        if not train:
            raise DataError(f"{self.config.file}: no training query is left (queries = {self.config.queries!r})")
        return train, validation


def _build_live(config: StoredCandidatesConfig, shots: int) -> Any:
    live = config.live
    needs = NEEDS[config.reward.mode]
    if "beam_score" in needs:
        raise ConfigError(f"reward mode {config.reward.mode!r} needs beam scores, which a live task does not give")
    return build_task(live.model_copy(update={"shots": shots, "reward": config.reward}), 0)  # type: ignore[union-attr]


def _read_features(path: Path) -> tuple[dict[str, int], Tensor]:
    """Ids (as text) to rows, and embeddings [n, d]."""
    import numpy as np

    if not path.is_file():
        raise DataError(f"no features at {path}", "an npz file with `ids` [n] and `embeddings` [n, d]")
    with np.load(path, allow_pickle=False) as data:
        if missing := {"ids", "embeddings"} - set(data.files):
            raise DataError(f"{path} lacks {sorted(missing)}; it holds {data.files}")
        ids, table = [str(i) for i in data["ids"]], torch.from_numpy(data["embeddings"]).float()
    if len(ids) != len(table):
        raise DataError(f"{path}: {len(ids)} ids, {len(table)} embeddings")
    return {name: i for i, name in enumerate(ids)}, table
