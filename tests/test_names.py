"""One concept, one name: no two files of nearly the same name for different things."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "anygrpo"
ALIKE = {
    ("card", "cards"): "a card's type; a family's cards",
    ("metric", "metrics"): "a metric's type; a family's metrics",
    ("reward", "rewards"): "what a reward is; a family's rewards",
    ("group", "groups"): "generation that knows groups; what groups show",
    ("task", "tasks"): "one task; a folder of them",
    ("rule", "rules"): "a rule's type; a folder of rules",
    ("model", "models"): "a selector's scorer or a motion model; the room that loads models",
    ("scorer", "scorers"): "one scorer; a folder of them",
    ("__main__", "main"): "python -m; the command line",
    ("_worker", "workers"): "what runs inside a worker; the workers",
    ("_plain", "plain"): "JSON inside a sandbox; generation by the library's own cache",
    ("run", "runs"): "a run's state; metrics of runs",
    ("update", "updates"): "the optimizer step; metrics of it",
    ("call", "calls"): "a denoiser's call; compiled kernels as functions",
    ("head", "heads"): "log-probs of a model's head; a restorer's gate heads",
    ("layout", "layouts"): "packed sequences; files of stored candidates",
    ("session", "sessions"): "a run from start to report; sessions of tools",
    ("measure", "measures"): "a step's numbers; measures of a picture",
}
"""Pairs that may differ by a letter, each in rooms of its own, and why."""


def names() -> set[str]:
    return {path.stem for path in SOURCE.rglob("*.py")} | {path.name for path in SOURCE.rglob("*") if path.is_dir()}


def nearly(a: str, b: str) -> bool:
    """Whether two names differ by an s, an underscore or an ending alone: what the eye takes for one."""
    x, y = (name.replace("_", "") for name in (a, b))
    return x == y or x + "s" == y or y + "s" == x


def test_no_near_twins_but_those_with_a_reason():
    twins = {(a, b) for a, b in combinations(sorted(names()), 2) if nearly(a, b)}
    assert twins - ALIKE.keys() == set()


def test_alike_is_what_there_is():
    there = names()
    stale = {pair for pair in ALIKE if not set(pair) <= there}
    assert stale == set()
