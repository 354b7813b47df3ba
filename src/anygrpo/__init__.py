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
    "ratios": "anygrpo.algorithm.ratios",
    "schedules": "anygrpo.algorithm.schedules",
    "weights": "anygrpo.algorithm.weights",
    # records and protocols
    "Batch": "anygrpo.rollout:Batch",
    "Block": "anygrpo.rollout:Block",
    "Evaluation": "anygrpo.rollout:Evaluation",
    "Rollout": "anygrpo.rollout:Rollout",
    "Scores": "anygrpo.rollout:Scores",
    "Stored": "anygrpo.rollout:Stored",
    "BasePolicy": "anygrpo.policies.base:BasePolicy",
    "Policy": "anygrpo.policies.base:Policy",
    "BaseTask": "anygrpo.tasks.base:BaseTask",
    "Task": "anygrpo.tasks.base:Task",
    "gate": "anygrpo.policies.stochastic:gate",
    # training
    "Recipe": "anygrpo.config.recipe:Recipe",
    "load_recipe": "anygrpo.config.load:load_recipe",
    "Run": "anygrpo.train.run:Run",
    "Updater": "anygrpo.train.update:Updater",
    "build_policy": "anygrpo.policies:build_policy",
    "build_task": "anygrpo.tasks:build_task",
    "new_run": "anygrpo.train.build:new_run",
    "resumed_run": "anygrpo.train.build:resumed_run",
    "train": "anygrpo.train.loop:train",
    # the doctor and the metrics
    "CATALOGUE": "anygrpo.metrics:CATALOGUE",
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
