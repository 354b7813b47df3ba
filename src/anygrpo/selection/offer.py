"""What a query is offered: how many of the nearest candidates, and whether itself. Picks depend on it as on weights."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from anygrpo.errors import DataError
from anygrpo.selection.file_settings import JudgedConfig, StoredCandidatesConfig
from anygrpo.selection.settings import CompositionConfig, DemonstrationsConfig, DigitsVQAConfig
from anygrpo.selection.stored_query import StoredQuery

if TYPE_CHECKING:
    from anygrpo.recipe.recipe import Recipe
    from anygrpo.selection.policy import SelectorPolicy

POOL, IDS = 64, "two"
"""Assumed where nothing says them."""


@dataclass(frozen=True)
class Offer:
    """Attributes, each None where unknown:
    pool: the nearest so many candidates (by cosine) are a query's pool; 0: all.
    ids: "one": a query is not its own candidate; "two": ids of queries and candidates have nothing in common.
    own_place: ids = "one": the query itself takes a place of its pool, and is then excluded; False: it never stood
        there, and all of the pool can be picked.
    embedding: how texts were embedded.
    """

    pool: int | None = None
    ids: str | None = None
    own_place: bool | None = None
    embedding: str | None = None

    def or_else(self, other: Offer) -> Offer:
        """This one; what it leaves open, as the other says."""
        return replace(self, **{k: v for k, v in asdict(other).items() if getattr(self, k) is None})

    def seen(self, prompts: list[dict[str, Any]]) -> Offer:
        """With the pools of these prompts: the largest counts."""
        size = max(len(p["candidates"]) for p in prompts)
        own = bool(self.own_place) or any(_holds_itself(p) for p in prompts)
        return replace(self, pool=max(size, self.pool or 0), ids="one" if own else None, own_place=own)

    def told(self) -> dict[str, Any]:
        """What is known, JSON-ready."""
        return {k: v for k, v in asdict(self).items() if v is not None}

    @staticmethod
    def of(told: dict[str, Any]) -> Offer:
        """From `told`, and whatever else stands there."""
        return Offer(**{f.name: told.get(f.name) for f in fields(Offer)})


def offer_of(policy: SelectorPolicy, recipe: Recipe | None = None) -> Offer:
    """What queries were offered in the last stage of training: by the export that the policy was loaded from (unless
    it was trained since), the recipe, and the pools that it met."""
    met = policy.offered
    known = Offer() if met.pool is not None or policy.offer is None else policy.offer
    task: Any = None if recipe is None else recipe.resolved_stages()[-1].task
    known = known.or_else(_of_task(task)).or_else(met)
    known = known.or_else(_of_file(task)) if known.pool is None else known
    return known if known.ids == "one" else replace(known, own_place=None)


def _of_task(task: Any) -> Offer:
    if isinstance(task, StoredCandidatesConfig):  # its pools are the file's
        two = task.query_features is not None
        own = two or task.features is not None
        live = Offer() if task.live is None else _of_task(task.live)
        ids = task.ids or ("two" if two else "one")
        return Offer(ids=ids if own else live.ids, embedding=None if own else live.embedding)
    if isinstance(task, JudgedConfig):
        texts = task.query_features is None and task.candidate_features is None
        return Offer(task.pool, task.ids, True, task.embedding if texts else None)
    if isinstance(task, DigitsVQAConfig | DemonstrationsConfig | CompositionConfig):
        return Offer(task.pool, IDS, None, getattr(task, "embedding", None))
    return Offer()  # one's own: the pools that training met say it


def _of_file(task: Any) -> Offer:
    """Of a run that kept no note of its pools: from its file, where that is still there."""
    from anygrpo.selection.layouts import read_stored

    if not isinstance(task, StoredCandidatesConfig):
        return Offer()
    try:
        queries = read_stored(task.path, task.index).queries
    except DataError:
        return Offer()
    return Offer(max(len(q.pool) for q in queries), None, any(map(_stands_in_its_pool, queries)))


def _stands_in_its_pool(query: StoredQuery) -> bool:
    return any(str(name) == query.id for name in query.pool)


def _holds_itself(prompt: dict[str, Any]) -> bool:
    ids, name = prompt.get("ids"), str(prompt.get("id"))
    return ids is not None and any(str(ids[i]) == name for i in prompt.get("excluded", ()))
