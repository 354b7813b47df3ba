"""A sampling temperature that follows what it brings about. Plain Python: no torch.

The controller sees a step's number and sets the temperature of the steps to come; what is sampled at a temperature is
scored at that temperature. It moves the logarithm by at most `rate` a step and stays within [low, high].
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


@dataclass(frozen=True)
class StepSeen:
    """What a step showed.

    Attributes:
        entropy: mean entropy of a decision, nats; None: not known.
        live: share of groups with spread; None: no group was compared.
        easy, hard: shares of groups without spread, at the better and the worse half of all rewards so far.
    """

    entropy: float | None = None
    live: float | None = None
    easy: float = 0.0
    hard: float = 0.0


@dataclass(frozen=True)
class AdaptiveTemperature:
    """Holds the entropy of a decision, or the share of live groups, near `target`.

    Entropy grows with temperature: below the target the temperature rises, above it it falls, by the relative distance
    (at most 1) times `rate`. The share of live groups grows with temperature only as long as dead groups are alike
    because the policy is sure: above `start` the temperature rises only where most dead groups are of the easy kind
    (all pass), and returns to `start` where most of them fail: heat does not make a hard prompt easier.

    Attributes:
        value: the temperature now.
        of: "entropy" or "live".
        start: where `value` began.
    """

    value: float
    of: Literal["entropy", "live"]
    target: float
    start: float
    low: float
    high: float
    rate: float

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.start <= self.high:
            raise ConfigError(
                Text(
                    f"adaptive temperature: low = {self.low}, start = {self.start}, high = {self.high}",
                    f"自适应温度：low = {self.low}，start = {self.start}，high = {self.high}",
                ),
                Text("need 0 < low <= start <= high", "应满足 0 < low <= start <= high"),
            )


def update(state: AdaptiveTemperature, seen: StepSeen) -> AdaptiveTemperature:
    """After a step that showed `seen`. A number that is not there, or not finite, changes nothing."""
    measured = seen.entropy if state.of == "entropy" else seen.live
    if measured is None or not math.isfinite(measured):
        return state
    ceiling = state.high
    if state.of == "live" and not seen.easy > seen.hard:
        ceiling = state.start
    error = min(max((state.target - measured) / state.target, -1.0), 1.0)
    if error > 0 and state.value >= ceiling:
        wanted = max(ceiling, state.value * math.exp(-state.rate))
    else:
        wanted = state.value * math.exp(state.rate * error)
    if error > 0 and state.value < ceiling:
        wanted = min(wanted, ceiling)
    return replace(state, value=min(max(wanted, state.low), state.high))
