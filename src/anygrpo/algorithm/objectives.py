"""Log-ratios and losses per decision, [n, t]. n rows, t decisions; advantages [n, 1] or [n, t].

All share one signature, `objective(new, old, advantages, mask, settings) -> PerDecision`, `new` and `old` being
log-probs under the trained and the behaviour policy. A loss is 0 at masked places, whatever stands there. Sums and
means are not taken here: multiply by `weights.loss_weights` and sum.

A ratio above exp(`guard`) would overflow and cannot be drift: such decisions leave the loss and are returned in
`guarded`, to be counted. NaN is let through, for the optimizer step to refuse.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from anygrpo.errors import AnygrpoError, ConfigError
from anygrpo.spoken import Text


@dataclass(frozen=True)
class ClipSettings:
    """Numbers of the objectives.

    Attributes:
        low, high: the ratio is clipped to [1 - low, 1 + high].
        dual: for negative advantages the loss stays below dual x |advantage| (dual-clip PPO, arXiv 1912.09729); > 1.
        tau_positive, tau_negative: steepness of SAPO's gate by the sign of the advantage.
        guard: largest log-ratio that enters a loss. At 20 a ratio is 4.9e8.
    """

    low: float = 0.2
    high: float = 0.2
    dual: float | None = None
    tau_positive: float = 1.0
    tau_negative: float = 1.05
    guard: float = 20.0

    def __post_init__(self) -> None:
        if self.low < 0 or self.high < 0:
            raise ConfigError(
                Text(
                    f"clip range low = {self.low}, high = {self.high}", f"裁剪范围 low = {self.low}，high = {self.high}"
                ),
                Text("both must be >= 0", "两者都应不小于 0"),
            )
        if self.dual is not None and self.dual <= 1:
            raise ConfigError(
                Text(f"dual clip {self.dual}", f"dual clip 为 {self.dual}"),
                Text("it must be greater than 1 (3 is usual)", "应大于 1（常用 3）"),
            )
        if self.tau_positive <= 0 or self.tau_negative <= 0:
            raise ConfigError(
                Text(
                    f"SAPO tau {self.tau_positive}, {self.tau_negative}",
                    f"SAPO 的 tau 为 {self.tau_positive}、{self.tau_negative}",
                ),
                Text("both must be > 0", "两者都应大于 0"),
            )


@dataclass(frozen=True)
class PerDecision:
    """What an objective returns; all [n, t], the last four bool and False at masked places.

    Attributes:
        loss: to be weighted and summed.
        clipped_low: the ratio fell below 1 - low and the clip acts.
        clipped_high: the ratio rose above 1 + high and the clip acts.
        clipped_dual: the dual clip acts.
        guarded: left out of the loss by the overflow guard.
    """

    loss: Tensor
    clipped_low: Tensor
    clipped_high: Tensor
    clipped_dual: Tensor
    guarded: Tensor


def log_ratio(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """log(new / old) [n, t] where `mask`, else 0. Whatever stands at masked places (inf, NaN) never enters.

    Raises:
        AnygrpoError: shapes that differ.
    """
    if not new.shape == old.shape == mask.shape:
        raise AnygrpoError(
            Text(
                f"log-probs {tuple(new.shape)}, old {tuple(old.shape)}, mask {tuple(mask.shape)} differ",
                f"对数概率 {tuple(new.shape)}、旧的 {tuple(old.shape)} 与掩码 {tuple(mask.shape)} 形状不同",
            )
        )
    return torch.where(mask, new, 0.0) - torch.where(mask, old, 0.0)


def sequence_log_ratio(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """Mean log-ratio over a row's decisions, at each of its decisions [n, t]; 0 at masked places.

    The value is the length-normalised sequence ratio of GSPO, (1/T) sum_t log(new_t / old_t); the gradient of place t
    goes to new_t alone (GSPO-token, arXiv 2507.18071, eq. 14). Under any per-row mean over decisions the gradient is
    that of the sequence form. Needs all decisions of a row.
    """
    ratio = log_ratio(new, old, mask)
    length = mask.sum(1, keepdim=True).clamp(min=1)
    mean = (ratio.sum(1, keepdim=True) / length).detach()
    own = mean + (ratio - ratio.detach())
    return torch.where(mask, torch.where(ratio.isfinite(), own, mean), 0.0)  # inf - inf is NaN; the mean still says inf


def ratio_stats(ratio: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Scalars about log-ratios [n, t], per decision: `log_ratio/mean`, `log_ratio/abs_max`, `ratio/mean`, `ratio/max`,
    `ratio/ess` (effective sample size as a share of the decisions, (sum r)^2 / (n sum r^2)).

    No ratio is clamped: beyond float64 they are inf. Nothing selected: log-ratios 0, ratios 1.
    """
    x = ratio.detach()[mask].double()
    if x.numel() == 0:
        x = x.new_zeros(1)
    ess = 2 * x.logsumexp(0) - (2 * x).logsumexp(0) - math.log(x.numel())
    return {
        "log_ratio/mean": x.mean(),
        "log_ratio/abs_max": x.abs().max(),
        "ratio/mean": x.exp().mean(),
        "ratio/max": x.max().exp(),
        "ratio/ess": ess.exp(),
    }


Objective = Callable[[Tensor, Tensor, Tensor, Tensor, ClipSettings], PerDecision]


def _guarded_ratio(logs: Tensor, mask: Tensor, settings: ClipSettings) -> tuple[Tensor, Tensor]:
    """(ratio, guarded). Guarded places hold ratio 1 without gradient: neither exp nor its gradient overflows."""
    guarded = mask & (logs.detach() > settings.guard)
    return torch.where(guarded, 0.0, logs).exp(), guarded


def _credit(advantages: Tensor, mask: Tensor) -> Tensor:
    """The advantages, which are one a row or one a decision.

    Raises:
        AnygrpoError: neither: [n] beside n decisions would credit decisions with rows' advantages.
    """
    n, t = mask.shape
    if advantages.shape != (n, 1) and advantages.shape != (n, t):
        raise AnygrpoError(
            Text(
                f"advantages {tuple(advantages.shape)} for {n} rows of {t} decisions",
                f"{n} 行、每行 {t} 次决策，优势却是 {tuple(advantages.shape)}",
            ),
            Text(
                f"give [n, 1] = [{n}, 1] (one a row: advantages[:, None]) or [n, t] = [{n}, {t}]",
                f"请给出 [n, 1] = [{n}, 1]（每行一个：advantages[:, None]）或 [n, t] = [{n}, {t}]",
            ),
        )
    return advantages


def plain(loss: Tensor, mask: Tensor) -> PerDecision:
    """A loss [n, t] that nothing clips, as a `PerDecision`."""
    none = torch.zeros_like(mask)
    return PerDecision(torch.where(mask, loss, 0.0), none, none, none, none)


def _clipped(logs: Tensor, advantages: Tensor, mask: Tensor, settings: ClipSettings) -> PerDecision:
    """-min(r A, clip(r) A), given log r."""
    advantages = _credit(advantages, mask)
    ratio, guarded = _guarded_ratio(logs, mask, settings)
    inside = ratio.clamp(1 - settings.low, 1 + settings.high)
    loss = -torch.minimum(ratio * advantages, inside * advantages)
    usable = mask & ~guarded
    low = usable & (ratio < 1 - settings.low) & (advantages < 0)
    high = usable & (ratio > 1 + settings.high) & (advantages > 0)
    dual = torch.zeros_like(mask)
    if settings.dual is not None:
        ceiling = -settings.dual * advantages
        dual = usable & (advantages < 0) & (loss > ceiling)
        loss = torch.where(dual, ceiling, loss)
    return PerDecision(torch.where(usable, loss, 0.0), low, high, dual, guarded)


def ppo(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, settings: ClipSettings) -> PerDecision:
    """-min(r A, clip(r, 1 - low, 1 + high) A), r = new / old of each decision. PPO, arXiv 1707.06347; separate bounds
    from DAPO, arXiv 2503.14476. A clipped decision has no gradient."""
    return _clipped(log_ratio(new, old, mask), advantages, mask, settings)


def gspo(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, settings: ClipSettings) -> PerDecision:
    """PPO's clip with the length-normalised ratio of the whole sequence. GSPO, arXiv 2507.18071.

    Needs all decisions of a row. Its ratios are nearer to 1: bounds of 3e-4 and 4e-4 in the paper.
    """
    return _clipped(sequence_log_ratio(new, old, mask), advantages, mask, settings)


def cispo(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, settings: ClipSettings) -> PerDecision:
    """-sg(clip(r, 1 - low, 1 + high)) A log new: clipped decisions keep a gradient. CISPO, arXiv 2506.13585.

    The flags say where the weight was clipped, whatever the sign of A. The weight is bounded: no guard is needed.
    """
    ratio = log_ratio(new, old, mask).detach().exp()
    weight = ratio.clamp(1 - settings.low, 1 + settings.high)
    bare = plain(-weight * _credit(advantages, mask) * new, mask)
    low, high = mask & (ratio < 1 - settings.low), mask & (ratio > 1 + settings.high)
    return PerDecision(bare.loss, low, high, bare.clipped_dual, bare.guarded)


def sapo(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, settings: ClipSettings) -> PerDecision:
    """-(4 / tau) sigmoid(tau (r - 1)) A: a soft gate in place of the clip. SAPO, arXiv 2511.20347.

    Its gradient at r = 1 is that of r A, and fades on both sides; tau depends on the sign of A. Nothing is clipped.
    """
    advantages = _credit(advantages, mask)
    ratio, guarded = _guarded_ratio(log_ratio(new, old, mask), mask, settings)
    tau = torch.where(advantages > 0, settings.tau_positive, settings.tau_negative)
    loss = -4 / tau * torch.sigmoid(tau * (ratio - 1)) * advantages
    none = torch.zeros_like(mask)
    return PerDecision(torch.where(mask & ~guarded, loss, 0.0), none, none, none, guarded)


def reinforce(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, settings: ClipSettings) -> PerDecision:
    """-A log new. Right for samples of the present policy alone: `old` plays no part. Williams 1992."""
    return plain(-_credit(advantages, mask) * new, mask)


def supervised(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, settings: ClipSettings) -> PerDecision:
    """-log new: cross-entropy of given actions. `old` and `advantages` play no part."""
    return plain(-new, mask)


def rce(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, settings: ClipSettings) -> PerDecision:
    """-w log new: reward-weighted cross-entropy; `advantages` holds w >= 0 from `advantages.reward_weights`.

    Raises:
        ConfigError: a negative weight, which would push a candidate's probability to 0.
    """
    if bool((advantages < 0).any()):
        raise ConfigError(
            Text(f"RCE with a weight of {float(advantages.min()):.4g}", f"RCE 的权重为 {float(advantages.min()):.4g}"),
            Text("use reward_weights, not advantages", "请用 reward_weights，而不是优势"),
        )
    return plain(-_credit(advantages, mask) * new, mask)


OBJECTIVES: dict[str, Objective] = {
    "ppo": ppo,
    "gspo": gspo,
    "cispo": cispo,
    "sapo": sapo,
    "reinforce": reinforce,
    "supervised": supervised,
    "rce": rce,
}
"""Every objective by the name used in recipes."""

WHOLE_SEQUENCE: frozenset[str] = frozenset({"gspo"})
"""Objectives that need all decisions of a row in one block."""
