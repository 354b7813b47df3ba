"""Scored candidates as records, whatever the layout of the file they came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

BEAM, SAMPLE, RETRIEVAL, RANDOM = "beam", "sample", "retrieval", "random"
METHODS = (BEAM, SAMPLE, RETRIEVAL, RANDOM)
STOCHASTIC = (SAMPLE, RANDOM)
"""Methods whose selections have a probability of having been drawn; the others are deterministic."""
FALLBACKS = ("fallback", "simple_match")
"""Judges that compare strings where the data set's own measure was not to be had: another, coarser reward."""
FAILURES = ("error", "failed")


@dataclass(frozen=True)
class Candidate:
    """One scored selection.

    Attributes:
        selection: positions in the query's pool, in order.
        method: beam, sample, retrieval, random, or another writer's word; "" where the file does not say.
        parts: what is known of it: correct, accuracy_score, gt_prob, relevance, beam_score, info_score.
        log_prob: of the whole selection under the policy and temperature that made it; None where not stored.
        temperature: of a sample. rank: of a beam, from 0.
        answer: what the frozen model said. failed: it could not be evaluated.
        judged_by: how the file's writer scored it (`vqa_eval_mode`); "" where the file does not say.
    """

    selection: tuple[int, ...]
    method: str = ""
    parts: dict[str, float] = field(default_factory=dict)
    log_prob: float | None = None
    temperature: float | None = None
    rank: int | None = None
    answer: str | None = None
    failed: bool = False
    judged_by: str = ""

    @property
    def propensity(self) -> float | None:
        """Behaviour log-probability, where an importance weight exists: drawn at random, and stored as a log."""
        stored = self.method in STOCHASTIC and self.log_prob is not None and self.log_prob <= 0
        return self.log_prob if stored else None

    @property
    def by_fallback(self) -> bool:
        """Scored by a stand-in for the data set's own measure."""
        return self.judged_by.lower() in FALLBACKS


@dataclass(frozen=True)
class StoredQuery:
    """A query's candidates.

    Attributes:
        id: the file's key. query: question, answers and whatever else the file holds of it.
        pool: global ids of what could be picked, in the order positions refer to.
        pool_given: False: the file has no pool; `pool` is the union of what its candidates hold.
    """

    id: str
    pool: tuple[Any, ...]
    candidates: tuple[Candidate, ...]
    query: dict[str, Any] = field(default_factory=dict)
    pool_given: bool = True

    @property
    def positive(self) -> bool:
        """Some candidate is correct: h = 1, whatever the reward mode makes of it."""
        return any(c.parts.get("correct", 0.0) >= 0.5 for c in self.candidates)


@dataclass(frozen=True)
class StoredFile:
    """All queries of a file.

    Attributes:
        layout: "pool", "fixed", "legacy", or "mixed".
        index: what its `pointer` means: "global" or "local" ("both" in a mixed file).
        notes: sentences about what was passed over, or read otherwise than by its name.
    """

    layout: str
    index: str
    queries: tuple[StoredQuery, ...]
    notes: tuple[str, ...] = ()
