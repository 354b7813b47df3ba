"""Normalisers: how rewards become advantages, [P, G] to [P, G]. `advantages.compute` cleans their input.

Each takes float64 rewards with 0 at invalid places, the valid mask, and `AdvantageOptions`; what it puts at invalid
places is not used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from anygrpo.algorithm.statistics import TOLERANCE, PromptHistory, RunningState, group_mean, group_std, is_constant
from anygrpo.errors import ConfigError, suggestion
from anygrpo.spoken import Text


@dataclass(frozen=True)
class AdvantageOptions:
    """Numbers of the normalisers; each uses those that its formula has.

    Attributes:
        std_floor: standard deviations below it are replaced by it.
        clip: advantages are limited to [-clip, clip] (by `advantages.compute`, after the normaliser).
        components: reward parts [P, G] each, for "components" and "gdpo".
        component_weights: weight of each part; 1 where not named. A part of weight 0 plays no role.
        running: moving statistics so far, for "running".
        history, prompts: rewards that each prompt earned so far, and the numbers [P] of these prompts, for "history".
        history_least: rewards that a prompt's own statistics need; with fewer the batch's are taken.
        k: for "pass_at_k".
        ddof: 1 divides variances by n - 1, 0 by n.
        epsilon: added to standard deviations (and to the mean in "maxrl"). 0 is right; others exist for comparison.
    """

    std_floor: float = 0.0
    clip: float | None = None
    components: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    component_weights: dict[str, float] = field(default_factory=dict[str, float])
    running: RunningState = field(default_factory=RunningState)
    history: PromptHistory = field(default_factory=PromptHistory)
    prompts: Tensor | None = None
    history_least: int = 16
    k: int = 1
    ddof: int = 1
    epsilon: float = 0.0


Normaliser = Callable[[Tensor, Tensor, AdvantageOptions], Tensor]
"""(rewards [P, G] float64 with 0 at invalid places, valid [P, G], options) -> advantages [P, G]."""


def _divide(x: Tensor, std: Tensor, o: AdvantageOptions) -> Tensor:
    """x / max(std, floor) + epsilon in the denominator; 0 where that is 0."""
    below = std.clamp(min=o.std_floor) + o.epsilon
    return torch.where(below > 0, x / below, 0.0)


def _live(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    return ~is_constant(x, valid)[:, None]


def _flat(x: Tensor) -> Tensor:
    return x.reshape(1, -1)


def centred(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    """r - mean(group). Dr. GRPO, arXiv 2503.20783."""
    return torch.where(_live(x, valid, o) & valid, x - group_mean(x, valid), 0.0)


def zscore(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    """(r - mean) / max(std, floor) inside the group. GRPO, arXiv 2402.03300. |A| <= (n - 1) / sqrt(n) with ddof 1."""
    return _divide(centred(x, valid, o), group_std(x, valid, o.ddof), o)


def leave_one_out(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    """r_i - mean of the others = n / (n - 1) x (r_i - mean). RLOO, arXiv 2402.14740."""
    n = valid.sum(1, keepdim=True)
    return centred(x, valid, o) * n / (n - 1).clamp(min=1)


def leave_one_out_std(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    """(r_i - mean of the others) / std of the others (NeMo-RL's default).

    Where the others are constant their spread says nothing: the difference stays undivided, in place of the 4000 that
    float32 rounding gives there.
    """
    group = valid.shape[1]
    others = valid[:, None, :] & valid.new_ones(group, group).fill_diagonal_(False)  # [P, G, G]
    rows = x[:, None, :].expand(others.shape).reshape(-1, group)
    mask = others.reshape(-1, group)
    std = group_std(rows, mask, o.ddof).reshape(x.shape)
    flat = is_constant(rows, mask).reshape(x.shape)
    difference = leave_one_out(x, valid, o)
    return torch.where(flat, difference, _divide(difference, std, o))


def rank(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    """2 x rank / (n - 1) - 1 with ties sharing their average rank: in [-1, 1], mean 0.

    Without ties the (n-divided) standard deviation is sqrt((n + 1) / (3 (n - 1))). A sample's value is (how many it
    beats - how many beat it) / (n - 1).
    """
    beats = (x[:, :, None] > x[:, None, :]) & valid[:, :, None] & valid[:, None, :]  # [P, winner, loser]
    n = valid.sum(1, keepdim=True)
    values = (beats.sum(2) - beats.sum(1)).double() / (n - 1).clamp(min=1)
    return torch.where(_live(x, valid, o), values, 0.0)


def batch(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    """(r - mean(group)) / std of all rewards of the batch (TRL `scale_rewards="batch"`; LitePPO, arXiv 2508.08221)."""
    return _divide(centred(x, valid, o), group_std(_flat(x), _flat(valid), o.ddof), o)


def whitened(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    """r - mean(group), then centred and scaled over the batch. REINFORCE++-baseline, arXiv 2501.03262."""
    return _over_batch(centred(x, valid, o), valid, o)


def overall(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    """(r - mean) / std over the whole batch. REINFORCE++, arXiv 2501.03262. Groups play no part."""
    return _over_batch(x, valid, o)


def _over_batch(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    return zscore(_flat(x), _flat(valid), o).reshape(x.shape)


def running(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    """(r - m) / s with the moving mean and standard deviation, this batch included. Groups play no part.

    Prompts of unequal difficulty get advantages of one sign within a group; a group of one has a baseline here.
    """
    std = math.sqrt(o.running.variance)
    if std <= TOLERANCE * max(abs(o.running.mean), std):
        return torch.zeros_like(x)
    return _divide(x - o.running.mean, x.new_tensor(std), o)


def history(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    """(r - m) / s with mean and standard deviation of the prompt's own last rewards, this batch's included; those of
    the whole batch while the prompt has fewer than `history_least`. DDPO's per-prompt statistics, arXiv 2305.13301
    (with ddof 0 and epsilon 1e-6, as published). A group of one has a baseline here; it lags behind the policy.

    Raises:
        ConfigError: the prompts' numbers are not given.
    """
    if o.prompts is None:
        raise ConfigError(
            Text('advantage = "history" needs the prompts\' numbers', 'advantage = "history" 需要提示的编号'),
            Text("give AdvantageOptions.prompts", "请给出 AdvantageOptions.prompts"),
        )
    past, held = o.history.rows(o.prompts, x)
    enough = held.sum(1) >= o.history_least
    own = _divide(x - group_mean(past, held), group_std(past, held, o.ddof), o)
    own = torch.where(is_constant(past, held)[:, None], 0.0, own)
    return torch.where(enough[:, None], own, _over_batch(x, valid, o))


def components(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    """Each reward part z-scored in the group, times its weight, summed. No batch normalisation (see `gdpo`).

    A part that is not finite for a sample takes that sample out of that part alone.
    """
    if not o.components:
        raise ConfigError(
            Text(
                "this advantage needs reward components and the task gives none", "这种优势需要奖励分量，而任务没有给出"
            ),
            Text('use advantage = "zscore"', '请用 advantage = "zscore"'),
        )
    if unknown := sorted(o.component_weights.keys() - o.components.keys()):
        raise ConfigError(
            Text(f"component weight for {unknown[0]!r}", f"分量 {unknown[0]!r} 的权重"),
            suggestion(unknown[0], o.components),
        )
    total = torch.zeros_like(x)
    for name, part in weighted_parts(o).items():
        usable = valid & torch.isfinite(part)
        z = zscore(torch.where(usable, part.double(), 0.0), usable, o)
        total = total + o.component_weights.get(name, 1.0) * z
    return total


def weighted_parts(o: AdvantageOptions) -> dict[str, Tensor]:
    """The parts whose weight is not 0."""
    return {name: part for name, part in o.components.items() if o.component_weights.get(name, 1.0)}


def gdpo(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    """`components`, then centred and scaled over the batch, so that the number of parts does not set the scale.

    GDPO, arXiv 2601.05242.
    """
    return _over_batch(components(x, valid, o), valid, o)


def maxrl(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    """(r - mean) / mean in the group, for rewards >= 0: rare successes weigh more. MaxRL, arXiv 2602.02710.

    Raises:
        ConfigError: a negative reward, for which the formula has no meaning.
    """
    if bool((x < 0).any()):
        raise ConfigError(
            Text(
                f'advantage "maxrl" needs rewards >= 0, got {float(x.min()):.4g}',
                f'优势 "maxrl" 需要不小于 0 的奖励，现有 {float(x.min()):.4g}',
            ),
            Text('use "zscore"', '请用 "zscore"'),
        )
    mean = group_mean(x, valid) + o.epsilon
    return centred(x, valid, o) / torch.where(mean > 0, mean, 1.0)


def gpg(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    """(r - mean(group)) x (valid samples / samples with a reward other than 0), counted over the batch.

    GPG, arXiv 2504.02546, as verl computes it.
    """
    return centred(x, valid, o) * valid.sum() / ((x != 0) & valid).sum().clamp(min=1)


def pass_at_k(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    """Unbiased advantage for the expected best of k samples, with a leave-one-out baseline.

    A_i = k (E max over {i} and k - 1 others - E max over k others), both expectations over all subsets of the group.
    The mean over the group of A_i grad log p_i is unbiased for grad E[max of k]; for rewards 0/1 that is pass@k, and
    for k = 1 it is `leave_one_out`. Follows Walder & Karkhanis, arXiv 2505.15201. Where invalid samples leave n <= k,
    k is n - 1.

    Raises:
        ConfigError: k < 1 or k >= G.
    """
    group = x.shape[1]
    if not 1 <= o.k < group:
        raise ConfigError(
            Text(f"pass_at_k with k = {o.k} and groups of {group}", f"pass_at_k 的 k = {o.k}，每组 {group} 个"),
            Text("choose 1 <= k < group_size", "请取 1 <= k < group_size"),
        )
    rewards = [[float(r) for r in row] for row in x.cpu()]
    usable = [[bool(u) for u in row] for row in valid.cpu()]
    each = [[_pass_at_k_one(r, u, i, o.k) for i in range(group)] for r, u in zip(rewards, usable)]
    return torch.where(_live(x, valid, o), x.new_tensor(each).reshape(x.shape), 0.0)


def _pass_at_k_one(rewards: list[float], usable: list[bool], i: int, k: int) -> float:
    own, others = rewards[i], sorted(r for j, r in enumerate(rewards) if usable[j] and j != i)
    k = min(k, len(others))  # 0 where no other is valid: not live
    with_own = own if k == 1 else expected_max([max(own, r) for r in others], k - 1)
    return k * (with_own - expected_max(others, k))


def expected_max(ascending: list[float], k: int) -> float:
    """Mean over all k-subsets of their maximum: sum_j C(j, k - 1) r_(j) / C(n, k), with r_(0) <= r_(1) <= ..."""
    return sum(math.comb(j, k - 1) / math.comb(len(ascending), k) * r for j, r in enumerate(ascending))


def best_gap(x: Tensor, valid: Tensor, o: AdvantageOptions) -> Tensor:
    """(best - second best) / std for the best sample, 0 for the others (verl's `grpo_passk`; arXiv 2503.19595).

    Two equal best samples: all 0.
    """
    filled = torch.where(valid, x, -math.inf)
    top = filled.topk(min(2, x.shape[1])).values
    gap = torch.where(filled == top[:, :1], top[:, :1] - top[:, -1:], 0.0)
    return torch.where(_live(x, valid, o), _divide(gap, group_std(x, valid, o.ddof), o), 0.0)


ADVANTAGES: dict[str, Normaliser] = {
    "zscore": zscore,
    "centred": centred,
    "leave_one_out": leave_one_out,
    "leave_one_out_std": leave_one_out_std,
    "rank": rank,
    "batch": batch,
    "whitened": whitened,
    "overall": overall,
    "running": running,
    "history": history,
    "components": components,
    "gdpo": gdpo,
    "maxrl": maxrl,
    "gpg": gpg,
    "pass_at_k": pass_at_k,
    "best_gap": best_gap,
}
"""Every normaliser by the name used in recipes."""

BY_PART = frozenset({"components", "gdpo"})
"""Those that compare the parts of a reward, and never their sum."""
