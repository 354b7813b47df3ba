"""GRPO for any policy, and a doctor for any training run.

Every room can be used alone. Names are imported on first use, so `import anygrpo` is quick and loads no torch:

    import anygrpo
    advantages = anygrpo.advantages.compute("zscore", rewards, valid).values
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    # the algorithm room
    "advantages": "anygrpo.algorithm.advantages",
    "correction": "anygrpo.algorithm.correction",
    "filters": "anygrpo.algorithm.filters",
    "kl": "anygrpo.algorithm.kl",
    "objectives": "anygrpo.algorithm.objectives",
    "schedules": "anygrpo.algorithm.schedules",
    "weights": "anygrpo.algorithm.weights",
    # records and protocols
    "Batch": "anygrpo.core.rollout:Batch",
    "Evaluation": "anygrpo.core.rollout:Evaluation",
    "Rollout": "anygrpo.core.rollout:Rollout",
    "Scores": "anygrpo.core.task:Scores",
    "Stored": "anygrpo.core.task:Stored",
    "Policy": "anygrpo.core.policy:Policy",
    "Task": "anygrpo.core.task:Task",
    "gate": "anygrpo.gates.build:gate",
    "causal_lm": "anygrpo.language.objects:causal_lm",
    "TextRows": "anygrpo.language.objects:TextRows",
    # training
    "frozen_weights": "anygrpo.core.trained:frozen_weights",
    "load": "anygrpo.export.opened:load",
    "load_state": "anygrpo.core.trained:load_state",
    "state_of": "anygrpo.core.trained:state_of",
    "Recipe": "anygrpo.recipe.recipe:Recipe",
    "parse_recipe": "anygrpo.recipe.load:parse_recipe",
    "load_recipe": "anygrpo.recipe.load:load_recipe",
    "Run": "anygrpo.train.run:Run",
    "Updater": "anygrpo.train.update:Updater",
    "build_policy": "anygrpo.core.build:build_policy",
    "build_task": "anygrpo.core.build:build_task",
    "new_run": "anygrpo.train.build:new_run",
    "resumed_run": "anygrpo.train.build:resumed_run",
    "train": "anygrpo.train",  # a room that can be called: watch.session.train
    # the doctor and the metrics
    "CATALOGUE": "anygrpo.metrics.catalogue:CATALOGUE",
    "diagnose": "anygrpo.doctor:diagnose",
}

__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'anygrpo' has no attribute {name!r}")
    module, _, attribute = _WHERE[name].partition(":")
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    return sorted(__all__)
