"""The rules, a file each, found by looking into this folder."""

from __future__ import annotations

import importlib
import pkgutil

from anygrpo.doctor.rule import RULES, Rule

__all__ = ["RULES", "Rule"]


def _load() -> None:
    """Import every file here, and put the rules in causal order."""
    for found in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{found.name}")
        assert found.name in RULES, f"rules/{found.name}.py defines no rule called {found.name}"
    ordered = sorted(RULES.values(), key=lambda rule: (rule.place, rule.id))
    RULES.clear()
    RULES.update((rule.id, rule) for rule in ordered)


_load()
