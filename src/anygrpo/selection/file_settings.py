"""Recipe sections of selection tasks on files: stored candidates, and queries judged by a scorer of one's own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from anygrpo.core.settings import OwnTaskConfig
from anygrpo.recipe.section import Section
from anygrpo.selection.scorer_settings import Scorer
from anygrpo.selection.settings import CompositionConfig, DemonstrationsConfig, DigitsVQAConfig, RewardConfig
from anygrpo.spoken import Text


class JudgedConfig(Section):
    """Queries and candidates of one's own, judged by a scorer of one's own."""

    kind: Literal["judged"]
    queries: str
    """JSONL, a row a query: `id`, `question` or `text`, the truth (`answer`, `answers` or `label`), `image`, and
    whatever the scorer wants."""
    candidates: str
    "JSONL, a row a candidate, with the same fields."
    scorer: Scorer
    "`[task.scorer]`: who says how good demonstrations are for a query."
    query_features: str | None = None
    "Table of embeddings by id (.npz, .npy, .pt, .parquet); none: the texts are embedded."
    candidate_features: str | None = None
    "The same for the candidates."
    embedding: str = "minilm"
    "As in digits_vqa, where there are no tables."
    ids: Literal["one", "two"] = "two"
    "one: candidate 7 is query 7, and excluded from its own pool."
    pool: int = Field(32, ge=0)
    "A query's pool: its nearest candidates, so many; 0: all candidates."
    shots: int = Field(2, ge=1)
    "Picks that count for the reward."
    reward_shots: tuple[int, ...] = ()
    "Average the reward over these prefixes of a selection; empty: all `shots` picks alone."
    held_out_share: float = Field(0.2, ge=0, lt=1)
    "Share of queries held out."
    reward: RewardConfig = RewardConfig()
    "`[task.reward]`: what a selection earns."


LiveTask = Annotated[
    DigitsVQAConfig | DemonstrationsConfig | CompositionConfig | JudgedConfig | OwnTaskConfig,
    Field(discriminator="kind"),
]


class StoredCandidatesConfig(Section):
    """Offline training on scored candidates from a file (`anygrpo select generate` writes one)."""

    kind: Literal["stored_candidates"]
    path: str
    "The file."
    more_files: tuple[str, ...] = ()
    "Further scored candidates of the same queries and pools: a plan of `anygrpo select plan` that was scored, say."
    features: str | None = None
    """One table of embeddings for queries and candidates (.npz, .npy, .pt, .parquet: docs/selection.md); none: the live
    task makes them, or the two tables below hold them."""
    query_features: str | None = None
    "Table of the queries alone: their ids may then be numbered apart from the candidates'."
    candidate_features: str | None = None
    "Table of the candidates alone."
    ids: Literal["one", "two"] | None = None
    """Id spaces. one: candidate 7 is query 7, and excluded from its own pool. two: they have nothing in common. none:
    two where there are two tables, else one."""
    live: LiveTask | None = None
    "The task that the candidates came from: scores what the file does not hold, and held-out queries."
    index: Literal["auto", "global", "local"] = "auto"
    "What `pointer` means; auto: detected, and refused where both readings fit and differ."
    held_out_share: float = Field(0.2, ge=0, lt=1)
    "Share of queries held out, where there is no live task."
    subset: int = Field(0, ge=0)
    "Train on this many of the training queries, the same ones in every run (100 are among the 200); 0: all."
    subset_seed: int = 0
    "Which ones."
    queries: Literal["all", "positive"] = "all"
    "positive: only queries with at least one candidate that is correct (h = 1, whatever the reward)."
    methods: tuple[str, ...] = ()
    "Only candidates of these generation methods (beam, sample, retrieval, random, or the file's own); empty: all."
    fallback: Literal["skip", "keep"] = "skip"
    "Candidates whose writer compared strings where the data set's own measure was not to be had (vqa_eval_mode)."
    min_score_when_wrong: float = Field(0.0, ge=0)
    "Quality filter: leave out candidates with h = 0 and s below this."
    propensities: bool = False
    "Give the file's behaviour log-probabilities to the policy; beams have none."
    min_judged: int = Field(30, ge=1)
    """Held-out queries whose pick the file judges, at the least, for an accuracy that early stopping and the best
    checkpoint may follow."""
    reward: RewardConfig = RewardConfig()
    "`[task.reward]`: what a selection earns."

    @model_validator(mode="after")
    def _features_from_somewhere(self) -> StoredCandidatesConfig:
        two = [self.query_features, self.candidate_features]
        if any(two) and not all(two):
            raise ValueError(
                Text(
                    "query_features and candidate_features go together: one of them is missing",
                    "query_features 与 candidate_features 要一起给出：缺少其中一个",
                )
            )
        if self.features is not None and any(two):
            raise ValueError(
                Text(
                    "features is one table for both; with query_features and candidate_features leave it out",
                    "features 是两者共用的一张表；有了 query_features 与 candidate_features 就请去掉它",
                )
            )
        if self.features is None and self.live is None and not any(two):
            raise ValueError(
                Text(
                    "neither features nor live is given: nothing says what the ids in the file look like",
                    "features 与 live 都没有给出：无从知道文件中的 id 是什么样的",
                )
            )
        return self
