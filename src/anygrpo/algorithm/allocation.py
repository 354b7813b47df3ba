"""A step's samples spread over its prompts by what each can still teach. Plain Python: a step has few prompts.

The gradient is a mean over prompts of group estimates; the variance of one made of n samples is near s^2 / n, with s
the spread of the prompt's rewards. For a fixed number of samples the mean's variance is least where n is in proportion
to s (Neyman 1934). s is not known: it is estimated from what the prompt gave before, and from how little that was.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


@dataclass(frozen=True)
class Seen:
    """What a prompt's answers have earned, older visits counting less.

    Attributes:
        count: samples, each in part; 0: nothing is known.
        total, squares: sum of their rewards, and of the rewards' squares.
    """

    count: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def after(self, rewards: Sequence[float], kept: float) -> Seen:
        """With a further visit's rewards; what came before weighs `kept` of what it did."""
        return Seen(
            self.count * kept + len(rewards),
            self.total * kept + math.fsum(rewards),
            self.squares * kept + math.fsum(r * r for r in rewards),
        )


def expected_spread(seen: Seen, lowest: float, highest: float) -> float:
    """Standard deviation that a prompt's rewards are thought to have.

    Half a sample at the lowest and half a one at the highest reward known are added to what was seen. For rewards 0 and
    1 and k passes of n this is sqrt(m (1 - m)) at m = (k + 1/2) / (n + 1), the mean of Jeffreys' posterior: a prompt
    that nothing is known of has the largest spread, and one that always passes approaches 0 as 1 / sqrt(2 n).
    """
    n = seen.count + 1
    mean = (seen.total + (lowest + highest) / 2) / n
    square = (seen.squares + (lowest**2 + highest**2) / 2) / n
    return math.sqrt(max(square - mean * mean, 0.0))


def sizes(spreads: Sequence[float], budget: int, unit: int, largest: int) -> list[int]:
    """Group sizes that make sum_p spread_p^2 / size_p least: multiples of `unit` from `unit` to `largest`.

    Exact: each unit in turn goes where it takes most off the sum (the terms are convex, each is its own). Of equals the
    smallest group comes first, then the first prompt. Less than a unit of the budget stays unused.

    Raises:
        ConfigError: the budget is less than a unit for each prompt.
    """
    if budget < unit * len(spreads):
        raise ConfigError(
            Text(
                f"{budget} samples a step for {len(spreads)} prompts and groups of at least {unit}",
                f"每步 {budget} 个样本，却有 {len(spreads)} 个提示，每组至少 {unit} 个",
            ),
            Text(
                f"samples_per_step has to be {unit * len(spreads)} or more",
                f"samples_per_step 应不小于 {unit * len(spreads)}",
            ),
        )
    made = [unit] * len(spreads)
    most = largest // unit * unit
    waiting = [(_gain(s, unit, unit), unit, p) for p, s in enumerate(spreads) if most > unit]
    heapq.heapify(waiting)
    for _ in range(budget // unit - len(spreads)):
        if not waiting:
            break
        *_, p = heapq.heappop(waiting)
        made[p] += unit
        if made[p] < most:
            heapq.heappush(waiting, (_gain(spreads[p], made[p], unit), made[p], p))
    return made


def _gain(spread: float, size: int, unit: int) -> float:
    """What a further unit adds to the sum: below 0."""
    return -(spread**2) * (1 / size - 1 / (size + unit))


def equal_share(size: Sequence[int], mean: float) -> list[float]:
    """Factors on the weights of groups of these sizes (0: no samples) by which each prompt counts as much as another:
    mean / size. Where sizes are equal they are 1.

    With it the loss estimates the mean over prompts, whatever the sizes. Sizes follow from earlier steps alone, so that
    of each prompt the expectation is that of a group of its size: with leave-one-out baselines it is the policy
    gradient for every size; with the group's own mean it is (n - 1) / n of it, so that larger groups count more (2
    samples: 1/2, 16: 15/16); a division by the group's standard deviation is biased for every size, by an amount that
    changes with it.
    """
    return [mean / n if n else 0.0 for n in size]
