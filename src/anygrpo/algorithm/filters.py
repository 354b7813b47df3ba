"""Which groups and samples of a step are used: keep masks [P, G], applied in order, with a count after each.

A filter is `filter(groups, **settings) -> keep [P, G] bool`. It never raises because nothing is left: an empty step is
the caller's to report, and `apply` says after which filter the groups died.

What a filter removes leaves the step: its advantages, its terms and every denominator. The filters in `NEUTRAL` remove
nothing of an update: they name groups whose own policy gradient is 0, to be skipped where that is exact (see
`train.batches.needed_rows`) and replaced where a recipe refills.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from anygrpo.algorithm.statistics import TOLERANCE, is_constant
from anygrpo.errors import ConfigError, suggestion
from anygrpo.spoken import Text


@dataclass(frozen=True)
class Groups:
    """What filters look at: all [P, G].

    Attributes:
        rewards: float.
        valid: bool: samples still in.
        ended: bool: finished by itself, not cut off.
        components: reward parts by name.
    """

    rewards: Tensor
    valid: Tensor
    ended: Tensor
    components: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])


@dataclass(frozen=True)
class Filtered:
    """What `apply` returns.

    Attributes:
        keep: [P, G] bool: valid samples that passed every filter, neutral ones too: what a refill need not replace.
        counted: [P, G] bool: valid samples that passed every filter but the neutral ones: what advantages, terms and
            denominators are made of.
        live: [P] bool: groups with spread among the kept samples.
        counts: "groups/live" before any filter and "groups/live_after/NAME" after each: shares of all P groups.
    """

    keep: Tensor
    counted: Tensor
    live: Tensor
    counts: dict[str, float]


def live_groups(rewards: Tensor, valid: Tensor) -> Tensor:
    """[P] bool: groups whose valid rewards have spread."""
    return ~is_constant(rewards, valid)


def drop_constant(groups: Groups) -> Tensor:
    """Groups with spread (dynamic sampling; DAPO, arXiv 2503.14476). Neutral: changes no update by itself."""
    return _whole(live_groups(groups.rewards, groups.valid), groups)


def pass_rate_band(groups: Groups, *, low: float, high: float, threshold: float = 0.5) -> Tensor:
    """Groups whose share of valid samples with reward >= threshold lies in [low, high]."""
    if not 0 <= low <= high <= 1:
        raise ConfigError(
            Text(f"pass-rate band [{low}, {high}]", f"通过率区间 [{low}, {high}]"),
            Text("need 0 <= low <= high <= 1", "应满足 0 <= low <= high <= 1"),
        )
    n = groups.valid.sum(1)
    rate = ((groups.rewards >= threshold) & groups.valid).sum(1).double() / n.clamp(min=1)
    return _whole((rate >= low) & (rate <= high), groups)


def component_at_least(groups: Groups, *, component: str, threshold: float) -> Tensor:
    """Groups where some valid sample reaches `threshold` in one reward part (say `correct` >= 1), not in their sum."""
    if component not in groups.components:
        raise ConfigError(
            Text(f"no reward component {component!r}", f"没有奖励分量 {component!r}"),
            suggestion(component, groups.components),
        )
    return _whole(((groups.components[component] >= threshold) & groups.valid).any(1), groups)


def minimum_spread(groups: Groups, *, spread: float) -> Tensor:
    """Groups whose best and worst valid rewards differ by at least `spread`: drops noise that would be scaled up.

    To the rounding of float32 rewards: .9 and .6 do differ by .3.
    """
    rewards = groups.rewards.double()
    high = torch.where(groups.valid, rewards, -torch.inf).amax(1)
    low = torch.where(groups.valid, rewards, torch.inf).amin(1)
    rounding = TOLERANCE * torch.where(groups.valid, rewards.abs(), 0.0).amax(1)
    return _whole(high - low >= spread - rounding, groups)


def top_k_by_reward(groups: Groups, *, k: int) -> Tensor:
    """The k valid samples of each group with the highest rewards; earlier ones where equal.

    Makes groups homogeneous: watch "groups/live_after/top_k_by_reward".
    """
    if k < 2:
        raise ConfigError(
            Text(f"top-k by reward with k = {k}", f"按奖励取前 k 个，k = {k}"),
            Text("a group needs at least 2 samples to be compared", "一组至少要有 2 个样本才能比较"),
        )
    ordered = torch.where(groups.valid, groups.rewards.double(), -torch.inf)
    best = ordered.sort(stable=True, descending=True).indices[:, :k]
    return torch.zeros_like(groups.valid).scatter(1, best, True) & groups.valid


def best_and_worst(groups: Groups, *, k: int) -> Tensor:
    """The k best and the k worst valid samples of each group (all of one with 2k or fewer); earlier ones where equal.

    Of many drawn samples those with most to say are trained on (DanceGRPO, arXiv 2505.07818, best-of-N). Advantages are
    those of the kept samples.
    """
    if k < 1:
        raise ConfigError(
            Text(f"best and worst by reward with k = {k}", f"按奖励取最好与最差，k = {k}"),
            Text("one of each at least", "至少各一个"),
        )
    rewards = groups.rewards.double()
    down = torch.where(groups.valid, rewards, -torch.inf).sort(stable=True, descending=True).indices[:, :k]
    up = torch.where(groups.valid, rewards, torch.inf).sort(stable=True).indices[:, :k]
    return torch.zeros_like(groups.valid).scatter(1, torch.cat([down, up], 1), True) & groups.valid


def overlong_mask(groups: Groups) -> Tensor:
    """Samples that finished by themselves (overlong filtering; DAPO, arXiv 2503.14476)."""
    return groups.ended & groups.valid


def soft_overlong_penalty(lengths: Tensor, max_length: int, buffer: int) -> Tensor:
    """A term <= 0 to add to rewards, of the shape of `lengths` (decisions), float32. DAPO, arXiv 2503.14476, eq. 13.

    0 up to max_length - buffer, then falling linearly to -1 at max_length, -1 beyond.

    Raises:
        ConfigError: not 0 < buffer <= max_length.
    """
    if not 0 < buffer <= max_length:
        raise ConfigError(
            Text(f"overlong buffer {buffer} of {max_length}", f"超长缓冲 {buffer}，长度上限 {max_length}"),
            Text("need 0 < buffer <= max_length", "应满足 0 < buffer <= max_length"),
        )
    return -((lengths.float() - (max_length - buffer)) / buffer).clamp(0.0, 1.0)


Filter = Callable[..., Tensor]

FILTERS: dict[str, Filter] = {
    "drop_constant": drop_constant,
    "pass_rate_band": pass_rate_band,
    "component_at_least": component_at_least,
    "minimum_spread": minimum_spread,
    "top_k_by_reward": top_k_by_reward,
    "best_and_worst": best_and_worst,
    "overlong_mask": overlong_mask,
}
"""Every filter by the name used in recipes."""

NEUTRAL: frozenset[str] = frozenset({"drop_constant"})
"""Filters whose groups stay in every statistic, term and denominator."""


def apply(groups: Groups, chain: Sequence[tuple[str | Filter, Mapping[str, Any]]]) -> Filtered:
    """Run the filters in order, each on what the ones before it left (neutral ones leave all). A filter is a name of
    `FILTERS` or a function of one's own, counted by the function's name.

    Raises:
        ConfigError: an unknown filter, or settings it does not have.
    """
    total = max(groups.rewards.shape[0], 1)
    live, dropped = live_groups(groups.rewards, groups.valid), torch.zeros_like(groups.valid)
    counts = {"groups/live": int(live.sum()) / total}
    for given, settings in chain:
        if isinstance(given, str) and given not in FILTERS:
            raise ConfigError(Text(f"unknown filter {given!r}", f"未知的过滤器 {given!r}"), suggestion(given, FILTERS))
        run, name = (FILTERS[given], given) if isinstance(given, str) else (given, given.__name__)
        try:
            keep = run(groups, **settings)
        except TypeError as error:
            raise ConfigError(
                Text(f"filter {name!r}: {error}", f"过滤器 {name!r}：{error}"),
                Text("see docs/algorithm.md for its settings", "它的设置见 docs/algorithm.md"),
            ) from error
        if name in NEUTRAL:
            dropped = dropped | ~keep
        else:
            groups = replace(groups, valid=groups.valid & keep)
        live = live_groups(groups.rewards, groups.valid & ~dropped)
        counts[f"groups/live_after/{name}"] = int(live.sum()) / total
    return Filtered(groups.valid & ~dropped, groups.valid, live, counts)


def _whole(keep: Tensor, groups: Groups) -> Tensor:
    """[P] spread over the group, [P, G]."""
    return keep[:, None] & groups.valid
