"""What an acting doctor turns in a training loop, and with what it may do so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Setting:
    """Factors on the run's own schedules; 1 (and 0 for the floor of beta) is untouched."""

    learning_rate: float = 1.0
    beta: float = 1.0
    beta_at_least: float = 0.0
    clip: float = 1.0

    def __post_init__(self) -> None:
        if not all(type(x) in (int, float) and 0 <= x < math.inf for x in vars(self).values()):
            raise ValueError(f"factors are finite numbers from 0: {vars(self)}")  # of a checkpoint that was changed


class Levers(Protocol):
    """What a training loop lets the doctor do."""

    def turn(self, setting: Setting) -> None:
        """Put these factors in force from the next step on."""
        ...

    def roll_back(self, step: int) -> str | None:
        """Go back to the newest checkpoint made at or before `step`; its name, or None where there is none."""
        ...

    def stop(self, reason: str) -> None:
        """End the run after this step, checkpoint saved."""
        ...


class ShadowLevers:
    """Levers of mode "shadow": nothing is pulled, so that what would be done can be read beforehand."""

    def turn(self, setting: Setting) -> None:
        pass

    def roll_back(self, step: int) -> str | None:
        return None

    def stop(self, reason: str) -> None:
        pass
