"""What of a run follows its own samples: the temperature under control, and what is known of each prompt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from anygrpo.algorithm import filters
from anygrpo.algorithm import temperature as heat
from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Rollout
from anygrpo.recipe.adaptive import AdaptiveTemperature
from anygrpo.recipe.recipe import Stage
from anygrpo.train.spread import PromptBook
from anygrpo.train.stages import PlannedStage


class Adaptive:
    """Part of a run's state, and of its checkpoints.

    Attributes:
        heat: the controller of the present stage's temperature; None: a schedule or a number has it.
        ahead: what the rollout of the step to come was sampled at, where it was sampled ahead.
        rewards: lowest and highest of the present stage so far.
        book: what each prompt has earned, where groups are of unequal size.
    """

    def __init__(self, policy: Policy, stages: list[PlannedStage]) -> None:
        self.heat: heat.AdaptiveTemperature | None = None
        self.ahead: float | None = None
        self.rewards: tuple[float, float] | None = None
        self.book = PromptBook()
        moves = any(planned.stage.algorithm.temperature is not None for planned in stages)
        self._own: float | None = getattr(policy, "temperature", None) if moves else None

    def begin(self, stage: Stage, fresh: bool) -> None:
        """A stage starts, or goes on after a resume."""
        held = stage.algorithm.temperature
        self.heat = None
        if isinstance(held, AdaptiveTemperature):
            self.heat = heat.AdaptiveTemperature(
                held.start, held.of, held.target, held.start, held.low, held.high, held.rate
            )
        if fresh:
            self.book, self.rewards, self.ahead = PromptBook(), None, None

    def with_temperature(self, settings: dict[str, float], stage: Stage, scheduled: float | None) -> dict[str, float]:
        """The policy's settings with the temperature of samples drawn now: the controller's, the schedule's, or the
        policy's own where another stage moves it."""
        if self.heat is not None and isinstance(stage.algorithm.temperature, AdaptiveTemperature):
            return settings | {"temperature": self.heat.value}
        if scheduled is not None:
            return settings | {"temperature": scheduled}
        return settings if self._own is None else {"temperature": self._own} | settings

    def follow(self, stage: Stage, every: Rollout, row: dict[str, Any]) -> None:
        """Take account of a step: all its samples, and its numbers."""
        if stage.source != "policy":
            return
        if stage.algorithm.group_size == "auto":
            self.book.learn(every)
        if self.heat is not None:
            self.heat = heat.update(self.heat, self._shown(every, row))

    def _shown(self, every: Rollout, row: dict[str, Any]) -> heat.StepSeen:
        rewards = every.rewards[every.valid]
        if rewards.numel():
            low, high = float(rewards.min()), float(rewards.max())
            known = self.rewards or (low, high)
            self.rewards = min(low, known[0]), max(high, known[1])
        compared = every.valid.sum(1) > 1
        total = int(compared.sum())
        if not total or self.rewards is None:
            return heat.StepSeen(row.get("entropy"))
        dead = compared & ~filters.live_groups(every.rewards, every.valid)
        value = torch.where(every.valid, every.rewards, -torch.inf).amax(1)
        easy = dead & (value > sum(self.rewards) / 2)
        live, passing, failing = (float(x.sum()) / total for x in (compared & ~dead, easy, dead & ~easy))
        return heat.StepSeen(row.get("entropy"), live, passing, failing)

    def state(self) -> dict[str, Any]:
        """For checkpoints."""
        value = None if self.heat is None else self.heat.value
        return {"temperature": value, "ahead": self.ahead, "rewards": self.rewards, "book": self.book.state()}

    def load(self, state: dict[str, Any]) -> None:
        """What `state` gave; nothing where the checkpoint is of an older version. Bounds are the recipe's as it is."""
        if self.heat is not None and state.get("temperature") is not None:
            self.heat = replace(self.heat, value=min(max(state["temperature"], self.heat.low), self.heat.high))
        self.ahead, self.book = state.get("ahead"), PromptBook.of(state.get("book", []))
        self.rewards = None if state.get("rewards") is None else tuple(state["rewards"])
