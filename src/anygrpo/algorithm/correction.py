"""Importance correction of samples that another policy than the old one drew.

Three policies can differ: *behaviour* (what really sampled: another engine, another precision, weights a step old),
*old* (the policy as an update finds it, scored by the training pass) and *new* (what is trained). Objectives clip
new / old; what remains, old / behaviour, is a factor on each decision's loss: truncated (TIS: limited to `cap`) or
masked (MIS: decisions above `cap` leave).

Three policies: Hilton et al., "Batch size-invariance for policy optimization", arXiv 2110.00641; of samples some
updates old: AReaL, arXiv 2505.24298. Truncation: Ionides, "Truncated importance sampling", 2008; of engines: Yao et
al., "Your efficient RL framework secretly brings you off-policy RL training", 2025; masked and by sequence: Liu et al.,
"When speed kills stability", 2025.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from anygrpo.algorithm.objectives import log_ratio, ratio_stats
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


@dataclass(frozen=True)
class Correction:
    """What `importance_correction` returns; all [n, t] without gradient.

    Attributes:
        weights: to multiply losses with; 0 at masked places.
        log_ratio: log(old / behaviour) of each decision; 0 at masked places.
        used: the log-ratio that the weight comes from (at level "sequence" the row's sum, at each of its decisions);
            0 at masked places.
        above: bool, over the cap.
    """

    weights: Tensor
    log_ratio: Tensor
    used: Tensor
    above: Tensor


def importance_correction(
    old: Tensor,
    behaviour: Tensor,
    mask: Tensor,
    *,
    cap: float = 2.0,
    mode: str | Rule = "truncate",
    level: str = "decision",
) -> Correction:
    """Weights min(old / behaviour, cap) that make samples of `behaviour` count as samples of `old`.

    Args:
        old, behaviour: [n, t] log-probs of the same decisions under the policy before the update, by the training
            pass, and under whatever sampled them, as it reported them.
        mask: [n, t] bool.
        cap: largest weight, >= 1.
        mode: "truncate" (limit to cap), "mask" (weight 0 above cap), or a rule of one's own.
        level: "decision", or "sequence" (one weight a row, the product over its decisions; needs whole rows).

    Raises:
        ConfigError: cap below 1, or an unknown mode or level.
    """
    rule = RULES.get(mode) if isinstance(mode, str) else mode
    if cap < 1 or rule is None or level not in ("decision", "sequence"):
        raise ConfigError(
            Text(
                f"correction with cap {cap}, mode {mode!r}, level {level!r}",
                f"修正的上限为 {cap}，方式为 {mode!r}，层级为 {level!r}",
            ),
            Text(
                'cap >= 1, mode "truncate" or "mask", level "decision" or "sequence"',
                "应满足 cap >= 1，mode 为 “truncate” 或 “mask”，level 为 “decision” 或 “sequence”",
            ),
        )
    logs = log_ratio(old.detach(), behaviour, mask)
    used = logs.sum(1, keepdim=True).expand_as(logs) if level == "sequence" else logs
    above = mask & (used > math.log(cap))
    weights = rule(used, mask, cap)
    return Correction(torch.where(mask, weights, 0.0), logs, torch.where(mask, used, 0.0), above)


Rule = Callable[[Tensor, Tensor, float], Tensor]
"""(log-ratio that weights come from [n, t], mask [n, t], cap) -> weights [n, t]."""


def truncate(logs: Tensor, mask: Tensor, cap: float) -> Tensor:
    """min(old / behaviour, cap): truncated importance sampling."""
    return logs.clamp(max=math.log(cap)).exp()


def mask_above(logs: Tensor, mask: Tensor, cap: float) -> Tensor:
    """old / behaviour, and 0 above the cap: masked importance sampling."""
    return torch.where(logs > math.log(cap), 0.0, truncate(logs, mask, cap))


def none(logs: Tensor, mask: Tensor, cap: float) -> Tensor:
    """1: ratios are to the behaviour policy itself, so nothing is left to correct."""
    return torch.ones_like(logs)


RULES: dict[str, Rule] = {"truncate": truncate, "mask": mask_above}
"""Every rule by the name used in recipes."""


def mismatch(log_ratio: Tensor, used: Tensor, above: Tensor) -> dict[str, Tensor]:
    """Scalars about m decisions of a `Correction`, [m] each, of all ranks together.

    mismatch/ratio_mean, ratio_max, ess: of the ratios that weights come from, before the cap; ess is the effective
    sample size (sum r)^2 / (m sum r^2). mismatch/log_prob: mean |log old - log behaviour|. mismatch/truncated: share
    above the cap. kl/rollout: KL(behaviour || old) a decision, mean of r - 1 - log r. Nothing given: ratios 1, else 0.
    """
    every = torch.ones_like(used, dtype=torch.bool)
    stats, logs, count = ratio_stats(used, every), log_ratio.double(), max(log_ratio.numel(), 1)
    return {
        "mismatch/ratio_mean": stats["ratio/mean"],
        "mismatch/ratio_max": stats["ratio/max"],
        "mismatch/ess": stats["ratio/ess"],
        "mismatch/log_prob": logs.abs().sum() / count,
        "mismatch/truncated": above.sum() / count,
        "kl/rollout": (torch.expm1(logs) - logs).sum() / count,
    }
