"""Intervals of means and of differences, which say what they cover: prompts, or prompts and seeds.

Simulated coverage of the nominal 95% (`bench/coverage.py`) stands in docs/compare.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anygrpo.algorithm.statistics import TOLERANCE, is_constant
from anygrpo.core.tails import clopper_pearson, skewed, skewness, t_quantile, unseen

_RESAMPLES, _BLOCK = 4_000, 500
POWER = 0.8
"""Power at which a difference counts as one that can be shown: the interval's reach and t at .8, in standard errors.
(Where t alone decides, as in `arms`, by the noncentral t: .77 at 2 degrees of freedom, .79 at 4, .80 from 8.)"""


@dataclass(frozen=True)
class Interval:
    """A mean with its 95% interval.

    Attributes:
        units: independent values behind it: clusters (scenes, photographs) where such are given, else values.
        detectable: smallest true value that so many units would show with 80% power, by this interval's wider side;
            never 0.
    """

    mean: float
    low: float
    high: float
    units: int
    detectable: float

    @property
    def shown(self) -> bool:
        """Whether 0 lies outside."""
        return self.low > 0 or self.high < 0


def interval(
    values: Tensor, clusters: Sequence[object] | None = None, span: float | None = None, seen: float | None = None
) -> Interval:
    """The mean of values [n] with a 95% interval over independent units: Student's t, and where that is wider on a side
    what Hall's (1992) transformation of t gives, which allows for skewed values (`tails.skewed`).

    Where all units are equal to rounding (`alike`), it is what so few could have missed: 1 - .025^(1/n) of the units
    may be as far away as a unit can be.

    Args:
        clusters: the unit each value belongs to (crops of one photograph are one); every unit weighs as its values do.
        span: no unit can be below -span or above it (1 for differences of right and wrong), nor can the interval. One
            that a value exceeds is none.
        seen: as `span`, of what was seen only (`largest`): it bounds equal units and no interval.

    Raises:
        ValueError: no values.
    """
    values = values.double()
    if not values.numel():
        raise ValueError("no values: there is no mean")
    mean = float(values.mean())
    means, sizes = _by_cluster(values, clusters)
    n = len(means)
    most = float(values.abs().max())
    if span is not None and most > span * (1 + TOLERANCE):  # no bound: a value is beyond it
        span, seen = None, max(most, seen or 0.0)
    reach = seen if seen is not None else span
    missed = unseen(n) * (most if reach is None else reach)
    se = 0.0
    if n < 2 and (reach is None or not math.isfinite(missed)):
        below = above = detectable = math.inf
    elif alike(means, seen or 0.0):
        below, above = _of_equals(mean, n, span, seen)
        detectable = max(below, above, missed) if n > 1 else math.inf
    else:
        parts = sizes / sizes.sum() * (means - mean)
        se = math.sqrt(float(parts.square().sum()) * n / (n - 1))
        t = t_quantile(n - 1)
        reaches = skewed(skewness(parts), t) if n > 2 else (t, t)
        below, above = (x * se if math.isfinite(se) else math.inf for x in reaches)
        detectable = max(max(below, above) + t_quantile(n - 1, POWER) * se, missed)
    low, high = _within(mean - below, mean + above, span)
    return Interval(mean, low, high, n, detectable)


def alike(values: Tensor, scale: float = 0.0) -> bool:
    """Whether values [n] differ by rounding only: of themselves, or of numbers as large as `scale` that they are
    differences of."""
    if not values.numel():
        return False
    known = torch.ones(1, values.numel(), dtype=torch.bool)
    spread = float(values.max() - values.min())
    return bool(is_constant(values.reshape(1, -1), known)) or spread <= TOLERANCE * scale


def _of_equals(mean: float, n: int, span: float | None, seen: float | None) -> tuple[float, float]:
    """How far below and above the mean of n equal units the true mean may be. Of what was only seen nothing says on
    which side of the mean more lies: both reach as far."""
    if seen is None and span is not None:
        return unseen(n) * (span + mean), unseen(n) * (span - mean)
    reach = unseen(n) * ((seen or 0.0) + abs(mean))
    return reach, reach


def _within(low: float, high: float, span: float | None) -> tuple[float, float]:
    return (low, high) if span is None else (max(low, -span), min(high, span))


def difference(a: Tensor, b: Tensor) -> Interval:
    """The mean of b - a, values [n] of the same n prompts, with a 95% interval over prompts: within -1 and 1 where all
    values are within 0 and 1, and within -2 and 2 of values that are -1, 0 or 1."""
    return interval(b.double() - a.double(), span=_span(a, b), seen=largest(a, b))


def _span(*values: Tensor) -> float | None:
    """The largest difference that two such values can have, where they tell."""
    every = torch.cat([x.double().flatten() for x in values])
    if bool(((every >= 0) & (every <= 1)).all()):
        return 1.0
    return 2.0 if bool(((every.abs() == 1) | (every == 0)).all()) else None


def rate(values: Tensor, clusters: Sequence[object] | None = None) -> Interval:
    """The mean of values [n] in [0, 1] (right or wrong, a prompt's pass@k) with a 95% interval inside [0, 1].

    Clopper-Pearson. Of right and wrong answers it is exact; of shares (a prompt's pass rate) the trials are those that
    would have the variance found among independent units (Korn and Graubard 1998), in which a unit at 0 and a unit at 1
    are counted too: few units seldom show a rare hard one. Never narrower than 20 of 20 right deserves.

    Raises:
        ValueError: no values, or one outside [0, 1].
    """
    if values.numel() and (float(values.min()) < 0 or float(values.max()) > 1):
        raise ValueError(f"values from {float(values.min()):.4g} to {float(values.max()):.4g} are no rates")
    plain = interval(values, clusters, span=1.0)
    p, n = plain.mean, plain.units
    means, sizes = _by_cluster(values.double(), clusters)
    trials = float(n)
    if n > 1 and 0 < p < 1 and not bool(((means == 0) | (means == 1)).all()):
        share = n * sizes / sizes.sum()
        spread = float((share * (means - p)).square().sum()) + p * p + (1 - p) ** 2
        trials = p * (1 - p) * n * (n + 1) / spread
    low, high = clopper_pearson(p * trials, trials)
    return Interval(p, low, high, n, plain.detectable)


def of_prompts(values: Tensor, success: bool = False) -> Interval:
    """A score's values [n] over prompts: `rate` where all are within 0 and 1, else `interval`.

    Args:
        success: the score says what is right. Of any other score that has one value only nothing shows that it is a
            rate: the 0 of a penalty is its best, and a reward that is always 1 may be -1 of another prompt.
    """
    known = values.double()
    within = bool(((known >= 0) & (known <= 1)).all())
    if within and (success or not alike(known)):
        return rate(values)
    if alike(known) and float(known[0]) in (-1.0, 0.0, 1.0):
        return interval(values, span=1.0)
    return interval(values, seen=largest(values) if len(values) > 1 else None)  # one says nothing of others


def _by_cluster(values: Tensor, clusters: Sequence[object] | None) -> tuple[Tensor, Tensor]:
    if clusters is None:
        return values, torch.ones_like(values)
    names = {name: i for i, name in enumerate(dict.fromkeys(clusters))}
    index = torch.tensor([names[name] for name in clusters])
    sizes = torch.zeros(len(names), dtype=torch.float64).index_add_(0, index, torch.ones_like(values))
    sums = torch.zeros(len(names), dtype=torch.float64).index_add_(0, index, values)
    return sums / sizes, sizes


@dataclass(frozen=True)
class Arms:
    """Two recipes, each run with several seeds on the same prompts: the difference b - a of their means.

    Attributes:
        low, high: 95%, over seeds and prompts together.
        seeds_a, seeds_b, prompts: what it rests on.
        between_seeds: standard deviation of a recipe's mean from seed to seed.
        detectable: smallest true difference that so many seeds and prompts show with 80% power.
        seeds_needed: seeds of each recipe that would show the measured difference; None where it is 0 or prompts alone
            hide it.
    """

    mean_a: float
    mean_b: float
    difference: float
    low: float
    high: float
    seeds_a: int
    seeds_b: int
    prompts: int
    between_seeds: float
    detectable: float
    seeds_needed: int | None


def largest(*values: Tensor) -> float:
    """The largest difference between values, one of which may be 0, as the span of differences that nothing else
    bounds (rewards of -1 and 1 differ by 2); of zeros alone 1, as of right and wrong: answers that are all alike show
    no difference, not that there is none."""
    every = torch.cat([x.double().flatten() for x in values])
    return (max(float(every.max()), 0.0) - min(float(every.min()), 0.0) if every.numel() else 0.0) or 1.0


def arms(a: Tensor, b: Tensor) -> Arms:
    """Compare recipes from values [seeds, prompts] of the same prompts. Where all runs answer alike the interval is
    what so many prompts could have missed (`interval`).

    Seeds are independent, prompts are shared by all runs: var = var_a / S_a + var_b / S_b + var over prompts of the
    mean gap, by Satterthwaite's degrees of freedom. (A bootstrap of three seeds has three values to draw from and
    covers too little; `hierarchical` is there for ten and more.)

    Raises:
        ValueError: a single seed on a side: nothing is known of seeds.
    """
    a, b = a.double(), b.double()
    if min(len(a), len(b)) < 2:
        raise ValueError(f"{len(a)} and {len(b)} seeds: a recipe needs two at least")
    gap = float(b.mean() - a.mean())
    seed_a, seed_b = (x.mean(1).var(correction=1) / len(x) for x in (a, b))
    over_prompts = (b.mean(0) - a.mean(0)).var(correction=1) / a.shape[1] if a.shape[1] > 1 else torch.zeros(())
    # noise of single answers is in the seeds' variance and in the prompts': what both hold is counted once
    residual = sum((x - x.mean(1, keepdim=True) - x.mean(0) + x.mean()).var() / x.numel() for x in (a, b))
    prompts = max(0.0, float(over_prompts - residual))
    parts = [(float(seed_a), len(a) - 1), (float(seed_b), len(b) - 1), (prompts, max(1, a.shape[1] - 1))]
    total = sum(part for part, _ in parts)
    seen = largest(a, b)
    if math.sqrt(total) <= TOLERANCE * seen:  # rounding
        total, freedom, half = 0.0, math.inf, _of_equals(gap, a.shape[1], None, seen)[0]
    else:
        freedom = total**2 / sum(part**2 / f for part, f in parts)
        half = t_quantile(freedom) * math.sqrt(total)
    low, high = _within(gap - half, gap + half, _span(a, b))
    spread = math.sqrt((len(a) * float(seed_a) + len(b) * float(seed_b)) / 2)
    reach = (t_quantile(freedom) + t_quantile(freedom, POWER)) * math.sqrt(total)
    detectable = max(reach, unseen(a.shape[1]) * seen)
    return Arms(
        float(a.mean()), float(b.mean()), gap, low, high, len(a), len(b), a.shape[1], spread, detectable,
        _seeds_needed(abs(gap), spread, prompts, a.shape[1]),
    )  # fmt: skip


def _seeds_needed(gap: float, spread: float, prompts: float, count: int) -> int | None:
    """Fewest seeds of each recipe (2 at least) that show the gap with 80% power. prompts: variance over `count` of
    them, which further seeds do not lower; None where it hides the gap for any number."""

    def reach(n: int) -> float:
        each, total = spread**2 / n, 2 * spread**2 / n + prompts
        below = 2 * each**2 / (n - 1) + prompts**2 / max(1, count - 1)
        freedom = total**2 / below if below else math.inf
        return (t_quantile(freedom) + t_quantile(freedom, POWER)) * math.sqrt(total)

    return fewest(reach, gap)


def fewest(reach: Callable[[int], float], gap: float) -> int | None:
    """The least n >= 2 whose reach, which falls with n, is at most the gap; None where there is none, or no gap."""
    few, most = 2, 10**7
    if not gap or reach(most) > gap:
        return None
    while few < most:
        middle = (few + most) // 2
        few, most = (few, middle) if reach(middle) <= gap else (middle + 1, most)
    return few


def hierarchical(a: Tensor, b: Tensor, seed: int = 0) -> tuple[float, float]:
    """95% percentile bootstrap of mean(b) - mean(a), values [seeds, prompts]: seeds of each side and the prompts that
    both share are drawn anew. It covers .95 with ten seeds a side and .86 with three."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(n: int) -> Tensor:
        """[_BLOCK, n]: how often each of n was drawn, as a share."""
        which = torch.randint(n, (_BLOCK, n), generator=generator)
        return torch.zeros(_BLOCK, n, dtype=torch.float64).scatter_add_(
            1, which, torch.full(which.shape, 1 / n).double()
        )

    gaps = []
    for _ in range(_RESAMPLES // _BLOCK):
        prompts = drawn(a.shape[1])
        gaps.append((drawn(len(b)) @ b.double() * prompts).sum(1) - (drawn(len(a)) @ a.double() * prompts).sum(1))
    low, high = torch.quantile(torch.cat(gaps), torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high
