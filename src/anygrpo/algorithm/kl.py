"""KL(policy || reference) of each decision: sampled estimates, exact forms, and controllers of its weight.

All estimators here share one gradient, the right one. With d = log new - log ref and x drawn from the behaviour policy,

    grad KL = E_new[d grad log new] = E_old[(new / old) d grad log new]

per decision, given what came before it. Differentiating an estimator's value is something else: k1 gives
E[grad log new] = 0, k3 gives grad KL(ref || new), and neither holds off policy. So `value` is the estimate, and `loss`
is written such that its gradient is sg(new / old x d) grad log new.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anygrpo.algorithm.objectives import log_ratio
from anygrpo.errors import ConfigError, suggestion
from anygrpo.spoken import Text

GUARD = 20.0
"""Largest exponent that is taken; what lies beyond is marked in `KL.guarded`."""


@dataclass(frozen=True)
class KL:
    """All [n, t], 0 or False at masked places.

    Attributes:
        value: the estimate, without gradient, not importance-weighted.
        loss: to be weighted and summed; its value is the importance-weighted estimate.
        guarded: an exponent above `GUARD` was met: the value is a lower bound, or the loss leaves the decision out.
    """

    value: Tensor
    loss: Tensor
    guarded: Tensor


def k1(difference: Tensor) -> Tensor:
    """d: unbiased, of either sign. Schulman, "Approximating KL divergence", 2020 (all three)."""
    return difference


def k2(difference: Tensor) -> Tensor:
    """d^2 / 2: biased, never negative, low variance near 0."""
    return difference.square() / 2


def k3(difference: Tensor) -> Tensor:
    """exp(-d) - 1 + d: unbiased, never negative. The exponent is limited to `GUARD`; `estimate` marks where."""
    return torch.expm1((-difference).clamp(max=GUARD)) + difference


ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}


def estimate(kind: str, new: Tensor, ref: Tensor, old: Tensor | None, mask: Tensor) -> KL:
    """KL to the reference from log-probs of the decisions taken, all [n, t].

    Args:
        kind: "k1", "k2" or "k3": which value; the gradient is the same.
        new, ref, old: log-probs under the trained, the reference and the behaviour policy. Without `old` the samples
            are taken to be the present policy's.
        mask: [n, t] bool.

    Raises:
        ConfigError: an unknown kind.
    """
    if kind not in ESTIMATORS:
        raise ConfigError(
            Text(f"unknown KL estimator {kind!r}", f"未知的 KL 估计 {kind!r}"), suggestion(kind, ESTIMATORS)
        )
    difference = log_ratio(new.detach(), ref, mask)
    value = ESTIMATORS[kind](difference)
    far = mask & (difference < -GUARD) if kind == "k3" else torch.zeros_like(mask)
    drift = torch.zeros_like(difference) if old is None else log_ratio(new.detach(), old, mask)
    lost = mask & (drift > GUARD)
    weight = torch.where(lost, -math.inf, drift).exp()
    present = mask & (weight != 0)  # an action that new has no probability for: 0 x inf = 0
    pull = torch.where(present, weight * difference, 0.0)
    loss = torch.where(present, weight * value + pull * (new - new.detach()), 0.0)
    return KL(value, loss, far | lost)


def sampled_k1(new: Tensor, ref: Tensor, old: Tensor | None, mask: Tensor) -> KL:
    """`estimate` with the value k1."""
    return estimate("k1", new, ref, old, mask)


def sampled_k2(new: Tensor, ref: Tensor, old: Tensor | None, mask: Tensor) -> KL:
    """`estimate` with the value k2."""
    return estimate("k2", new, ref, old, mask)


def sampled_k3(new: Tensor, ref: Tensor, old: Tensor | None, mask: Tensor) -> KL:
    """`estimate` with the value k3."""
    return estimate("k3", new, ref, old, mask)


def of_loss(loss: Tensor, mask: Tensor) -> KL:
    """A loss [n, t] of one's own as a `KL`: what is differentiated, and what is logged."""
    loss = torch.where(mask, loss, 0.0)
    return KL(loss.detach(), loss, torch.zeros_like(mask))


def exact(kl: Tensor, mask: Tensor) -> KL:
    """A KL [n, t] that the policy computed exactly, with its own gradient, as a `KL`."""
    return of_loss(kl, mask)


def gaussian_kl(mean: Tensor, log_std: Tensor, ref_mean: Tensor, ref_log_std: Tensor) -> Tensor:
    """KL(N(mean, std) || N(ref_mean, ref_std)) of each dimension, broadcast: [...]. Sum over a decision's dimensions.

    log(s'/s) + (s^2 + (m - m')^2) / (2 s'^2) - 1/2
    """
    shrink = 2 * (log_std - ref_log_std)
    distance = ((mean - ref_mean) * torch.exp(-ref_log_std)).square()
    return (torch.expm1(shrink) - shrink + distance) / 2


def categorical_kl(log_probs: Tensor, ref_log_probs: Tensor) -> Tensor:
    """sum_a p (log p - log q) over the last dimension: [..., A] to [...]. Actions with p = 0 (log -inf) add 0.

    Where p > 0 and q = 0 the KL is inf, as it should be: the two supports differ.
    """
    possible = log_probs > -math.inf
    p = torch.where(possible, log_probs, 0.0)
    q = torch.where(possible, ref_log_probs, 0.0)
    return torch.where(possible, p.exp() * (p - q), 0.0).sum(-1)


@dataclass(frozen=True)
class FixedKL:
    """A weight that stays."""

    beta: float


@dataclass(frozen=True)
class AdaptiveKL:
    """Proportional controller: beta x (1 + clip(kl / target - 1, -.2, .2) x samples / horizon).

    Ziegler et al., arXiv 1909.08593, section 2.2. `horizon` counts samples; a step of more samples than that counts as
    one horizon, so that the factor stays within [.8, 1.2] whatever the size of a step. Beta stays within its limits,
    the lower one above 0: what is multiplied could not return from there.
    """

    beta: float
    target: float
    horizon: float = 10_000.0
    minimum: float = 1e-6
    maximum: float = 10.0

    def __post_init__(self) -> None:
        if self.target <= 0 or self.horizon <= 0:
            raise ConfigError(
                Text(f"KL target {self.target}, horizon {self.horizon}", f"KL 目标 {self.target}，时域 {self.horizon}"),
                Text("both must be > 0", "两者都应大于 0"),
            )
        _check_limits(self.minimum, self.maximum)


@dataclass(frozen=True)
class BandKL:
    """beta x factor above the band [low, high], / factor below it, unchanged inside; kept within its limits."""

    beta: float
    low: float = 0.01
    high: float = 0.1
    factor: float = 1.5
    minimum: float = 1e-6
    maximum: float = 10.0

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high or self.factor <= 1:
            raise ConfigError(
                Text(
                    f"KL band [{self.low}, {self.high}], factor {self.factor}",
                    f"KL 区间 [{self.low}, {self.high}]，系数 {self.factor}",
                ),
                Text("low <= high, factor > 1", "应满足 low <= high，factor > 1"),
            )
        _check_limits(self.minimum, self.maximum)


def _check_limits(minimum: float, maximum: float) -> None:
    if not 0 < minimum <= maximum:
        raise ConfigError(
            Text(f"KL weight within [{minimum}, {maximum}]", f"KL 权重的范围为 [{minimum}, {maximum}]"),
            Text("need 0 < minimum <= maximum: 0 stays 0 for ever", "应满足 0 < minimum <= maximum：0 会永远是 0"),
        )


@dataclass(frozen=True)
class RuleKL:
    """A rule of one's own: (beta, kl, samples) -> the next beta, kept within the limits."""

    beta: float
    rule: Callable[[float, float, int], float]
    minimum: float = 1e-6
    maximum: float = 10.0

    def __post_init__(self) -> None:
        _check_limits(self.minimum, self.maximum)


Controller = FixedKL | AdaptiveKL | BandKL | RuleKL


def update(state: Controller, kl: float, samples: int = 1) -> Controller:
    """The controller after a step whose mean KL was `kl` over `samples` samples. A non-finite KL changes nothing."""
    if isinstance(state, FixedKL) or not math.isfinite(kl):
        return state
    beta = max(state.beta, state.minimum)  # from 0 too
    if isinstance(state, RuleKL):
        beta = state.rule(beta, kl, samples)
    elif isinstance(state, AdaptiveKL):
        error = min(max(kl / state.target - 1.0, -0.2), 0.2)
        beta *= 1.0 + error * min(samples / state.horizon, 1.0)
    elif kl > state.high:
        beta *= state.factor
    elif kl < state.low:
        beta /= state.factor
    return replace(state, beta=min(max(beta, state.minimum), state.maximum))
