"""Importance correction when another engine sampled: its log-probs differ from the trainer's, even for equal weights.

pi_trainer / pi_engine reweights each decision: truncated (TIS: weight limited to `cap`) or masked (MIS: decisions
above `cap` leave). Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025; masked
and sequence variants: Liu et al., "When speed kills stability", 2025.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from anygrpo.algorithm.ratios import log_ratio, ratio_stats
from anygrpo.errors import ConfigError


@dataclass(frozen=True)
class Correction:
    """What `engine_correction` returns.

    Attributes:
        weights: [n, t] without gradient, to multiply loss weights with; 0 at masked places.
        metrics: scalars: the `ratio_stats` of trainer over engine under `correction/...`, `correction/kl` (k3 of
            engine to trainer) and `correction/capped` (share of decisions above the cap).
    """

    weights: Tensor
    metrics: dict[str, Tensor]


def engine_correction(
    trainer: Tensor, engine: Tensor, mask: Tensor, *, cap: float = 2.0, mode: str = "truncate", level: str = "decision"
) -> Correction:
    """Weights that make samples of `engine` count as samples of `trainer`.

    Args:
        trainer, engine: [n, t] log-probs of the same decisions under the trainer's copy of the weights that sampled,
            and as the engine reported them.
        mask: [n, t] bool.
        cap: largest weight, >= 1.
        mode: "truncate" (limit to cap) or "mask" (weight 0 above cap).
        level: "decision", or "sequence" (one weight a row, the product over its decisions; needs whole rows).

    Raises:
        ConfigError: cap below 1, or an unknown mode or level.
    """
    if cap < 1 or mode not in ("truncate", "mask") or level not in ("decision", "sequence"):
        raise ConfigError(
            f"correction with cap {cap}, mode {mode!r}, level {level!r}",
            'cap >= 1, mode "truncate" or "mask", level "decision" or "sequence"',
        )
    logs = log_ratio(trainer.detach(), engine, mask)
    used = logs.sum(1, keepdim=True).expand_as(logs) if level == "sequence" else logs
    above = mask & (used > math.log(cap))
    weights = used.clamp(max=math.log(cap)).exp()
    if mode == "mask":
        weights = torch.where(above, 0.0, weights)
    n = mask.sum().clamp(min=1)
    metrics = {f"correction/{name}": value for name, value in ratio_stats(logs, mask).items()}
    metrics["correction/kl"] = (torch.expm1(logs.double()) - logs.double()).sum() / n
    metrics["correction/capped"] = above.sum() / n
    return Correction(torch.where(mask, weights, 0.0), metrics)
