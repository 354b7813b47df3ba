"""Offline training from a file of scored candidates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.build import build_task
from anygrpo.core.task import Stored, epoch_indices
from anygrpo.errors import ConfigError, DataError
from anygrpo.selection.file_settings import StoredCandidatesConfig
from anygrpo.selection.known_outcomes import judged_row
from anygrpo.selection.layouts import merged, read_stored
from anygrpo.selection.pick_judge import Judging
from anygrpo.selection.rewards import NEEDS, PARTS, reward
from anygrpo.selection.settings import RewardConfig
from anygrpo.selection.stored_features import StoredFeatures
from anygrpo.selection.stored_query import Candidate, StoredQuery
from anygrpo.selection.task import Prompt, Selection, SelectionTask
from anygrpo.selection.usable import usable
from anygrpo.spoken import Text

_SPLIT = 0


class StoredCandidates(SelectionTask):
    """Prompts are the file's queries. What the file does not hold is judged by the live task, where one is named;
    without one it is unknown: neither right nor wrong.

    Attributes:
        notes: sentences on what of the file was passed over, and why.
    """

    why_invalid = "not among the stored candidates, and no live task to judge it"

    def __init__(self, config: StoredCandidatesConfig, seed: int) -> None:
        self.config, self.seed, self.reward = config, seed, config.reward
        file = merged([read_stored(name, config.index) for name in (config.path, *config.more_files)])
        self.notes = list(file.notes)
        kept = self._kept(list(file.queries))
        self.by_id = {q.id: q for q in kept if q.candidates}
        self._check_parts()
        self.shots = max(len(c.selection) for q in self.by_id.values() for c in q.candidates)
        self.live: Any = None if config.live is None else _build_live(config, self.shots)
        self._own_queries = config.live is None or config.live.kind in ("judged", "python")
        self._features = None if self.live and not _own_features(config) else StoredFeatures(config, self.by_id)
        self.train, self.validation = self._split()
        self.size = len(self.train)
        self._made: dict[str, Prompt] = {}
        self._start: dict[str, float] = {}

    def prompts(self, step: int, count: int) -> list[Prompt]:
        return [self.prompt(self.train[i]) for i in epoch_indices(self.size, step, count, self.seed)]

    def held_out(self) -> list[Prompt]:
        """The live task's held-out queries where it makes its own, else the validation share of the file."""
        if self._own_queries or self.live is None:
            return [self.prompt(name) for name in self.validation]
        return self.live.held_out()

    def prepare(self, outputs_of: Callable[[list[Any]], list[list[Any]]], folder: Path) -> None:
        """Writes the notes into the run's log, and remembers how the start policy's held-out picks are judged."""
        if folder.is_dir():
            with (folder / "log.txt").open("a", encoding="utf-8") as log:
                log.writelines(f"{self.config.path}: {note}\n" for note in self.notes)
        if self.live is None and self.validation and "correct" in self.parts:
            prompts = self.held_out()
            correct = self._correct(prompts, outputs_of(prompts))
            self._start = {p["id"]: float(x) for p, x in zip(prompts, correct)}

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
        """By the live task; without one, by looking the selection up (its order counts, then its set). NaN: unknown."""
        if self.live:
            parts = Judging(self.live).parts(prompts, selections)
            if "beam_score" in NEEDS[self.reward.mode]:  # what no beam search made counts as the recipe says
                parts["beam_score"] = torch.full_like(next(iter(parts.values())), self.reward.missing_beam)
            return parts
        out = {name: torch.full((len(prompts), max(map(len, selections))), torch.nan) for name in self.parts}
        for p, (prompt, row) in enumerate(zip(prompts, selections)):
            by_order = {c.selection: c for c in self.by_id[prompt["id"]].candidates}
            by_set = {frozenset(s): c for s, c in reversed(by_order.items())}
            for g, selection in enumerate(row):
                found = by_order.get(tuple(selection)) or by_set.get(frozenset(selection))
                for name in self.parts if found else ():
                    out[name][p, g] = found.parts[name]  # type: ignore[union-attr]
        return out

    def measure(self, prompts: list[Prompt], outputs: list[list[Selection]]) -> dict[str, float]:
        """With a live task its measures. Without: how many picks the file judges, the accuracy of those, what it can be
        at least and at most over all, and the difference to the start policy where both are judged."""
        if self.live:
            return super().measure(prompts, outputs)
        if "correct" not in self.parts:
            found = torch.isfinite(next(iter(self.judge(prompts, _first(outputs, self.shots)).values())))
            known = float(found.sum())
            decides = float(known >= self.config.min_judged)
            return {"eval/in_support": float(found.float().mean()), "eval/judged": known, "eval/decides": decides}
        start = torch.tensor([self._start.get(p["id"], torch.nan) for p in prompts])
        return judged_row(self._correct(prompts, outputs), start, self.config.min_judged)

    def prompt(self, name: str) -> Prompt:
        """The query called `name` with features of itself and its pool.

        Raises:
            DataError: an id without features, or a pool that is not the live task's.
        """
        if name not in self._made:
            query = self.by_id[name]
            self._made[name] = self._from_live(query) if self._features is None else self._with_features(query)
        return self._made[name]

    def lengths(self) -> list[int]:
        """Numbers of picks that the file judges at all."""
        return sorted({len(c.selection) for q in self.by_id.values() for c in q.candidates})

    # --- inside -----------------------------------------------------------------------------------------------

    def _correct(self, prompts: list[Prompt], outputs: list[list[Selection]]) -> Tensor:
        """[P] of the first outputs: 1, 0, or NaN where unknown."""
        return self.judge(prompts, _first(outputs, self.shots))["correct"][:, 0]

    def _with_features(self, query: StoredQuery) -> Prompt:
        """Embeddings from tables; what a scorer is shown from the live task, where that is one's own."""
        prompt = self._features.prompt(query)  # type: ignore[union-attr]
        if self.config.live is not None and self.config.live.kind == "judged":
            shown = self.live.prompt(query.id, list(query.pool))
            prompt |= {"row": shown["row"], "rows": shown["rows"]}
        return prompt

    def _from_live(self, query: StoredQuery) -> Prompt:
        if self.config.live is not None and self.config.live.kind == "judged":
            return self.live.prompt(query.id, list(query.pool))
        prompt = self.live.prompt(query.id)
        if [str(i) for i in prompt["ids"]] != [str(i) for i in query.pool]:
            raise DataError(
                Text(
                    f"query {query.id!r}: the file's pool of {len(query.pool)} is not the live task's of "
                    f"{len(prompt['ids'])}",
                    f"查询 {query.id!r}：文件的候选池有 {len(query.pool)} 个，与任务的 {len(prompt['ids'])} 个不同",
                ),
                Text("use the task section that the file was generated with", "请用生成该文件时的任务设置"),
            )
        return prompt

    def _kept(self, queries: list[StoredQuery]) -> list[StoredQuery]:
        """Queries with the candidates that training may use; what goes is counted in `notes`.

        Raises:
            ConfigError: a method that no candidate has. DataError: nothing is left.
        """
        c = self.config
        present = Counter(x.method or "unknown" for q in queries for x in q.candidates)
        if absent := [m for m in c.methods if m not in present]:
            raise ConfigError(
                Text(f"methods: no candidate of {c.path} is of {absent}", f"methods：{c.path} 中没有候选属于 {absent}"),
                Text(f"it holds {dict(present)}", f"它有 {dict(present)}"),
            )

        def unwanted(x: Candidate) -> str | None:
            if x.parts.get("correct") == 0 and x.parts.get("accuracy_score", 0.0) < c.min_score_when_wrong:
                return "by the quality filter"
            return "of another method" if c.methods and x.method not in c.methods else None

        kept, gone = usable(queries, c.reward, c.fallback, unwanted)
        self.notes += [f"{n} candidates left out: {why}" for why, n in gone.items()]
        if not any(q.candidates for q in kept):
            why = "; ".join(f"{n} {words}" for words, n in gone.items())
            raise DataError(
                Text(f"{c.path}: no candidate is left after filters ({why})", f"{c.path}：过滤（{why}）后没有剩下候选"),
                Text(
                    "loosen methods, fallback or min_score_when_wrong",
                    "请放宽 methods、fallback 或 min_score_when_wrong",
                ),
            )
        return kept

    def _check_parts(self) -> None:
        every = [c for q in self.by_id.values() for c in q.candidates]
        self.parts = [name for name in PARTS if all(name in c.parts for c in every)]
        reward({name: torch.zeros(1) for name in self.parts}, self.reward)  # refuses a mode these data don't allow
        missing = sum(c.propensity is None for c in every)
        if self.config.propensities and missing:
            raise ConfigError(
                Text(
                    f"propensities = true, but {missing} of {len(every)} candidates have none (beams and retrieval are "
                    "deterministic; a log-probability above 0 is none)",
                    f"propensities = true，但 {len(every)} 个候选中有 {missing} 个没有（束搜索与检索是确定的；大于 "
                    "0 的对数概率不算）",
                ),
                Text(
                    'methods = ["sample"], or propensities = false',
                    '请设 methods = ["sample"]，或 propensities = false',
                ),
            )
        if self.config.queries == "positive" and "correct" not in self.parts:
            raise ConfigError(
                Text(
                    'queries = "positive" needs vqa_correct, which this file lacks',
                    'queries = "positive" 需要 vqa_correct，而这个文件没有',
                ),
                'queries = "all"',
            )

    def _split(self) -> tuple[list[str], list[str]]:
        """Training and validation queries. The validation share does not depend on the subset."""
        c, names = self.config, list(self.by_id)
        order = torch.randperm(len(names), generator=torch.Generator().manual_seed(_SPLIT)).tolist()
        held = round(c.held_out_share * len(names)) if self._own_queries else 0
        validation, train = [names[i] for i in order[:held]], [names[i] for i in order[held:]]
        if c.subset > len(train):
            raise ConfigError(
                Text(
                    f"subset = {c.subset}, but {c.path} holds {len(train)} training queries",
                    f"subset = {c.subset}，但 {c.path} 中有 {len(train)} 个训练查询",
                ),
                Text("subset = 0: all", "subset = 0：全部"),
            )
        if c.subset:
            chosen = torch.randperm(len(train), generator=torch.Generator().manual_seed(c.subset_seed + 1))
            train = [train[i] for i in sorted(chosen[: c.subset].tolist())]
        if c.queries == "positive":
            train = [name for name in train if self.by_id[name].positive]
        if not train:
            raise DataError(
                Text(
                    f"{c.path}: no training query is left (queries = {c.queries!r})",
                    f"{c.path}：没有剩下训练查询（queries = {c.queries!r}）",
                )
            )
        return train, validation


def _first(outputs: list[list[Selection]], shots: int) -> list[list[Selection]]:
    return [[tuple(o[:shots]) for o in row] for row in outputs]


def _own_features(config: StoredCandidatesConfig) -> bool:
    return bool(config.features or config.query_features)


def _build_live(config: StoredCandidatesConfig, shots: int) -> Any:
    live: Any = config.live
    needs = NEEDS[config.reward.mode]
    if live.kind == "python":
        return build_task(live, 0)
    reward = RewardConfig(per_shot=config.reward.per_shot) if "beam_score" in needs else config.reward
    return build_task(live.model_copy(update={"shots": shots, "reward": reward}), 0)
