"""All metrics: what every policy logs, and what the families add."""

from __future__ import annotations

from anygrpo.families import families, resolve
from anygrpo.metrics import advantages, groups, losses, runs, stale_samples, updates
from anygrpo.metrics.metric import Metric

_SHARED = (groups, advantages, stale_samples, runs, updates, losses)


def _gathered() -> dict[str, Metric]:
    shared = [metric for area in _SHARED for metric in area.METRICS]
    added = [metric for family in families() for text in family.metrics for metric in resolve(text)]
    return {metric.name: metric for metric in (*shared, *added)}


CATALOGUE: dict[str, Metric] = _gathered()


def describe(name: str) -> Metric | None:
    """The entry of a logged name: its own, or that of the longest family it belongs to. None where unknown."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    prefixes = [key for key in CATALOGUE if key.endswith(("/", "_")) and name.startswith(key)]
    return CATALOGUE[max(prefixes, key=len)] if prefixes else None
