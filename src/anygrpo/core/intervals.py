"""Intervals of means and of differences, which say what they cover: prompts, or prompts and seeds.

Simulated coverage of the nominal 95% (20,000 draws each, `python -m anygrpo.core.intervals`) stands in docs/compare.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_RESAMPLES, _BLOCK = 4_000, 500
_POWER = 0.841621
"""z of 80% power."""


@dataclass(frozen=True)
class Interval:
    """A mean with its 95% interval.

    Attributes:
        units: independent values behind it: clusters (scenes, photographs) where such are given, else values.
        detectable: smallest true value that so many units would show with 80% power; never 0.
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


def t_quantile(freedom: float, level: float = 0.975) -> float:
    """Student's t; the normal's quantile for infinitely many degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, level)) if math.isfinite(freedom) else 1.959964


def interval(values: Tensor, clusters: Sequence[object] | None = None, span: float | None = None) -> Interval:
    """The mean of values [n] with a 95% interval over independent units: Student's t, and where that is wider on a side
    what Hall's (1992) transformation of t gives, which allows for skewed values (`_skewed`).

    Args:
        clusters: the unit each value belongs to (crops of one photograph are one); every unit weighs as its values do.
        span: largest absolute value that a unit can have (1 for differences of right and wrong). Where all values are
            equal it bounds what so few could have missed: 1 - .025^(1/n) of the units may differ by `span` unseen
            (Clopper-Pearson at 0 of n).

    Raises:
        ValueError: no values.
    """
    values = values.double()
    if not values.numel():
        raise ValueError("no values: there is no mean")
    mean = float(values.mean())
    means, sizes = _by_cluster(values, clusters)
    n = len(means)
    parts = sizes / sizes.sum() * (means - mean)
    se = math.sqrt(float(parts.square().sum()) * n / (n - 1)) if n > 1 else math.inf
    unseen = (1 - 0.025 ** (1 / n)) * (float(values.abs().max()) if span is None else span)
    t = t_quantile(n - 1) if n > 1 else math.inf
    if n > 1 and se > 0:
        below, above = _skewed(parts, t)
        below, above = (x * se if math.isfinite(se) else math.inf for x in (below, above))
    else:
        below = above = unseen if n > 1 or (span is not None and math.isfinite(unseen)) else math.inf
    detectable = max((t + _POWER) * se if n > 1 else math.inf, unseen)
    return Interval(mean, mean - below, mean + above, n, detectable)


def _skewed(parts: Tensor, t: float) -> tuple[float, float]:
    """How far the interval reaches below and above the mean, in standard errors: t, or more on the side of the long
    tail. parts [n]: weighted deviations.

    With the skewness k of the mean, T = (mean - true) / se becomes nearly symmetric as T + k T^2 / 3 + k^2 T^3 / 27 +
    k / 6 (Hall 1992, JRSS B 54); its inverse at -t and t bounds the true mean. Of normal values little but noise is
    added; of log-normal ones t alone covers 83% at 9, the wider of both 91%.
    """
    n = len(parts)
    if n < 3:
        return t, t
    k = float(parts.pow(3).sum() / parts.square().sum().pow(1.5)) * math.sqrt(n * (n - 1)) / (n - 2)
    if not math.isfinite(k) or abs(k) < 1e-6:
        return t, t

    def inverse(y: float) -> float:
        return 3 / k * (math.cbrt(1 + k * (y - k / 6)) - 1)

    return max(t, inverse(t)), max(t, -inverse(-t))


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
    low, high = _clopper_pearson(p * trials, trials)
    return Interval(p, low, high, n, plain.detectable)


def _clopper_pearson(passed: float, trials: float) -> tuple[float, float]:
    from scipy.special import betaincinv

    low = 0.0 if passed <= 0 else float(betaincinv(passed, trials - passed + 1, 0.025))
    high = 1.0 if passed >= trials else float(betaincinv(passed + 1, trials - passed, 0.975))
    return low, high


def of_prompts(values: Tensor) -> Interval:
    """`rate` where all values are 0 or 1, else `interval`."""
    right_or_wrong = bool(((values == 0) | (values == 1)).all())
    return rate(values) if right_or_wrong else interval(values)


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
    """The largest absolute value, as the span of differences that nothing else bounds; of zeros alone 1, as of right
    and wrong: answers that are all alike show no difference, not that there is none."""
    every = torch.cat([x.double().flatten() for x in values]).abs()
    return (float(every.max()) if every.numel() else 0.0) or 1.0


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
    freedom = total**2 / sum(part**2 / f for part, f in parts) if total else math.inf
    t = t_quantile(freedom)
    unseen = (1 - 0.025 ** (1 / a.shape[1])) * largest(a, b)
    half = t * math.sqrt(total) if total else unseen
    spread = math.sqrt((len(a) * float(seed_a) + len(b) * float(seed_b)) / 2)
    room = (abs(gap) / (1.959964 + _POWER)) ** 2 - prompts
    needed = math.ceil(2 * spread**2 / room) if gap and room > 0 else None
    detectable = max((t + _POWER) * math.sqrt(total), unseen)
    return Arms(
        float(a.mean()), float(b.mean()), gap, gap - half, gap + half, len(a), len(b), a.shape[1], spread, detectable,
        None if needed is None else max(2, needed),
    )  # fmt: skip


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


def coverage(draws: int = 20_000, seed: int = 0) -> list[dict[str, float | str]]:
    """How often the nominal 95% hold the true mean, simulated: rows of docs/compare.md."""
    generator = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    rows: list[dict[str, float | str]] = []
    for n in (5, 9, 40):
        held = sum(_holds(interval(normal(n)), 0.0) for _ in range(draws))
        rows.append({"what": f"mean of {n} pictures", "coverage": held / draws})
    for n in (5, 9, 20, 40):
        skewed = sum(_holds(interval(normal(n).exp()), math.exp(0.5)) for _ in range(draws))
        rows.append({"what": f"mean of {n} skewed (log-normal) values", "coverage": skewed / draws})
    scenes = [i for i in range(9) for _ in range(7)]
    held = sum(_holds(interval((normal(9, 1) + normal(9, 7)).flatten(), scenes), 0.0) for _ in range(draws // 4))
    rows.append({"what": "mean over 9 scenes of 7 pictures", "coverage": held / (draws // 4)})
    for n, share, each in ((20, 0.5, 1), (20, 0.95, 1), (50, 0.1, 1), (20, 0.9, 8), (50, 0.5, 8)):
        found = [rate(_passes(n, share, each, generator)) for _ in range(draws // 4)]
        held = sum(_holds(x, share) for x in found)
        rows.append({"what": f"rate {share} over {n} prompts, {each} samples each", "coverage": held / (draws // 4)})
    for seeds in (3, 5, 10):
        held = drawn = 0
        for _ in range(draws // 4):
            easy = normal(1, 60)
            a, b = (0.5 * normal(seeds, 1) + 0.5 * easy * s + normal(seeds, 60) for s in (1.0, 1.2))
            found = arms(a, b)
            held += found.low <= 0 <= found.high
            if seeds >= 10:
                low, high = hierarchical(a, b)
                drawn += low <= 0 <= high
        rows.append({"what": f"two recipes, {seeds} seeds each, 60 prompts", "coverage": held / (draws // 4)})
    rows.append({"what": "the same 10 seeds each, bootstrap over both", "coverage": drawn / (draws // 4)})
    return rows


def _passes(prompts: int, share: float, samples: int, generator: torch.Generator) -> Tensor:
    """Pass rates of prompts of unequal difficulty: at each prompt p is share or, for one sample, a coin of it."""
    if samples == 1:
        return (torch.rand(prompts, generator=generator) < share).double()
    easy = (torch.rand(prompts, generator=generator) < share).double()  # solved by nearly all samples, or by few
    at = 0.9 * easy + 0.1 * share
    return (torch.rand(prompts, samples, generator=generator) < at[:, None]).double().mean(1)


def _holds(found: Interval, true: float) -> bool:
    return found.low <= true <= found.high


if __name__ == "__main__":
    for row in coverage():
        print(f"| {row['what']} | {float(row['coverage']):.3f} |")
