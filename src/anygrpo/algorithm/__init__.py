"""The mathematics of group-relative policy optimisation: pure functions of tensors. Imports torch and nothing else.

P prompts, G samples of each, T decisions of a sample, N = P x G rows; [n, t] is any part of [N, T].
docs/algorithm.md numbers each detail with its formula and source.
"""

from __future__ import annotations

from anygrpo.algorithm.advantages import Advantages, compute, reward_weights
from anygrpo.algorithm.correction import Correction, importance_correction, mismatch
from anygrpo.algorithm.filters import FILTERS, Filtered, Groups, live_groups, soft_overlong_penalty
from anygrpo.algorithm.filters import apply as apply_filters
from anygrpo.algorithm.kl import (
    ESTIMATORS,
    KL,
    AdaptiveKL,
    BandKL,
    Controller,
    FixedKL,
    RuleKL,
    categorical_kl,
    estimate,
    exact,
    gaussian_kl,
    update,
)
from anygrpo.algorithm.normalisers import ADVANTAGES, AdvantageOptions, expected_max
from anygrpo.algorithm.objectives import (
    OBJECTIVES,
    WHOLE_SEQUENCE,
    ClipSettings,
    PerDecision,
    log_ratio,
    ratio_stats,
    sequence_log_ratio,
)
from anygrpo.algorithm.schedules import value_at
from anygrpo.algorithm.statistics import TOLERANCE, Memory, PromptHistory, RunningState, is_constant
from anygrpo.algorithm.weights import REDUCTIONS, counts, loss_weights, row_weights

__all__ = [
    "ADVANTAGES",
    "ESTIMATORS",
    "FILTERS",
    "KL",
    "OBJECTIVES",
    "REDUCTIONS",
    "TOLERANCE",
    "WHOLE_SEQUENCE",
    "AdaptiveKL",
    "AdvantageOptions",
    "Advantages",
    "BandKL",
    "ClipSettings",
    "Controller",
    "Correction",
    "Filtered",
    "FixedKL",
    "Groups",
    "Memory",
    "PerDecision",
    "PromptHistory",
    "RuleKL",
    "RunningState",
    "apply_filters",
    "categorical_kl",
    "compute",
    "counts",
    "estimate",
    "exact",
    "expected_max",
    "gaussian_kl",
    "importance_correction",
    "is_constant",
    "live_groups",
    "log_ratio",
    "loss_weights",
    "mismatch",
    "ratio_stats",
    "reward_weights",
    "row_weights",
    "sequence_log_ratio",
    "soft_overlong_penalty",
    "update",
    "value_at",
]
