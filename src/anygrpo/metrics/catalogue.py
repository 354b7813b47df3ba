"""All metrics, gathered from each area's own file."""

from __future__ import annotations

from anygrpo.metrics.base import Metric

CATALOGUE: dict[str, Metric] = {}


def describe(name: str) -> Metric | None:
    """The entry of a logged name; members of a family share the family's."""
    return CATALOGUE.get(name)
