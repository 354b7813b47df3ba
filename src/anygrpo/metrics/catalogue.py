"""All metrics, gathered from each area's own file."""

from __future__ import annotations

import importlib
import pkgutil

from anygrpo import metrics
from anygrpo.metrics.base import Metric

_NOT_AREAS = ("__main__", "base", "catalogue")
_AREAS = [name for _, name, _ in pkgutil.iter_modules(metrics.__path__) if name not in _NOT_AREAS]

CATALOGUE: dict[str, Metric] = {
    metric.name: metric for area in _AREAS for metric in importlib.import_module(f"anygrpo.metrics.{area}").METRICS
}


def describe(name: str) -> Metric | None:
    """The entry of a logged name: its own, or that of the longest family it belongs to. None where unknown."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    families = [key for key in CATALOGUE if key.endswith(("/", "_")) and name.startswith(key)]
    return CATALOGUE[max(families, key=len)] if families else None
