"""Policies by kind. Each module is imported only when its kind is asked for."""

from __future__ import annotations

import importlib
from typing import Any

MODULES = {
    "causal_lm": "anygrpo.policies.causal_lm",
    "selector": "anygrpo.policies.selector",
    "diffusion": "anygrpo.policies.diffusion",
    "motion": "anygrpo.policies.motion",
    "stochastic": "anygrpo.policies.stochastic",
    "restorer": "anygrpo.policies.restorer",
    "python": "anygrpo.policies.python",
}


def build_policy(config: Any, seed: int) -> Any:
    """The policy of a recipe's [policy] section."""
    return importlib.import_module(MODULES[config.kind]).build(config, seed)
