"""What a sweep's winner is worth once it is allowed for that it was chosen, and how far apart many trials must be.

The largest of many means is too large: it was chosen for its luck too. `chosen_anew` makes the choice on nine tenths of
the held-out prompts and judges it on the rest, over and over; `factor` widens the intervals of differences such that
all pairs of trials hold at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from anygrpo.core.intervals import interval, rate, t_quantile

_FOLDS, _REPEATS, _RESAMPLES = 10, 20, 4000


@dataclass(frozen=True)
class Honest:
    """The winner's value without the luck of having been chosen.

    Attributes:
        value: on prompts that had no part in the choice.
        low, high: 95% for the chosen one's true mean, over prompts.
        apparent: the mean that it was chosen for.
        looks: trials x evaluations that the choice was made among.
    """

    value: float
    low: float
    high: float
    apparent: float
    looks: int
    prompts: int


def chosen_anew(scores: Tensor, sign: int = 1, seed: int = 0) -> Honest:
    """Of scores [looks, prompts], by cross-validation: each prompt is judged under the look that is best on the other
    folds, in the mean over `_REPEATS` partitions. It estimates what is got by choosing so.

    Args:
        sign: 1 where larger is better, else -1.

    Raises:
        ValueError: fewer than two prompts.
    """
    looks, n = scores.shape
    if n < 2:
        raise ValueError(f"{n} prompts: none is left to judge what the others choose")
    scores = scores.double()
    generator = torch.Generator().manual_seed(seed)
    judged = torch.zeros(n, dtype=torch.float64)
    for _ in range(_REPEATS):
        for fold in torch.randperm(n, generator=generator).tensor_split(min(_FOLDS, n)):
            others = torch.ones(n, dtype=torch.bool)
            others[fold] = False
            best = int((sign * scores[:, others].mean(1)).argmax())
            judged[fold] += scores[best, fold] / _REPEATS
    means = sign * scores.mean(1)
    chosen = int(means.argmax())
    low, high = _bounds(scores, chosen, sign, seed)
    value = float(judged.mean())
    return Honest(value, min(low, value), max(high, value), float(scores[chosen].mean()), looks, n)


def _bounds(scores: Tensor, chosen: int, sign: int, seed: int) -> tuple[float, float]:
    """95% of the chosen look's true mean. What it shows is too good by no more than the luckiest look's, in errors of
    each (bootstrap over prompts of the largest studentised excess, 97.5%); the other side is as any interval's."""
    bounded = bool(((scores >= 0) & (scores <= 1)).all())
    one = rate(scores[chosen]) if bounded else interval(scores[chosen])
    spread = scores.std(1, correction=1) / scores.shape[1] ** 0.5
    excess = sign * _moved(scores, seed) / spread.where(spread > 0, torch.inf)
    lucky = _few(float(excess.amax(1).quantile(0.975)), scores.shape[1]) * float(spread[chosen])
    worst, best = (one.low, one.high) if sign > 0 else (one.high, one.low)
    worst = sign * min(sign * worst, sign * one.mean - lucky)
    low, high = sorted((worst, best))
    return (max(0.0, low), min(1.0, high)) if bounded else (low, high)


def _moved(table: Tensor, seed: int) -> Tensor:
    """[resamples, rows]: means over prompts drawn anew, minus the means."""
    n = table.shape[1]
    drawn = torch.randint(n, (_RESAMPLES, n), generator=torch.Generator().manual_seed(seed))
    counts = torch.zeros(_RESAMPLES, n, dtype=torch.float64).scatter_add_(1, drawn, torch.ones(drawn.shape).double())
    return counts @ table.T / n - table.mean(1)


def factor(scores: Sequence[Tensor] | None, trials: int, seed: int = 0, fewest: int | None = None) -> float:
    """Standard errors that a 95% interval of a difference must have on each side, for all pairs of `trials` at once.

    With every trial's scores on the same prompts the 95% quantile of the largest studentised difference over all pairs,
    bootstrapped over prompts and widened for few; else Bonferroni's. One pair: Student's t.

    Args:
        fewest: prompts behind the difference that has the fewest, where they are not the same; None: unknown, many.
    """
    pairs = trials * (trials - 1) // 2
    if scores is None:
        return t_quantile(math.inf if fewest is None else fewest - 1, 1 - 0.025 / max(pairs, 1))
    if pairs <= 1:
        return t_quantile(len(scores[0]) - 1)
    table = torch.stack([x.double() for x in scores])  # [trials, prompts]
    n = table.shape[1]
    gaps = table[:, None] - table[None]
    errors = gaps.std(-1, correction=1) / n**0.5
    moved = _moved(table, seed)
    z = (moved[:, :, None] - moved[:, None, :]).abs() / errors.where(errors > 0, torch.inf)
    return max(t_quantile(n - 1), _few(float(z.flatten(1).amax(1).quantile(0.95)), n))


def _few(q: float, n: int) -> float:
    """A bootstrapped normal quantile as one of Student's t: means drawn anew from n values spread by sqrt((n - 1) / n)
    too little, and do not know that their errors were estimated. (8 equal trials of 10 prompts: some pair is called
    different in 6% of sweeps; without this in 28%.)"""
    return max(q, t_quantile(n - 1, NormalDist().cdf(min(q * (n / (n - 1)) ** 0.5, 8.0))))
