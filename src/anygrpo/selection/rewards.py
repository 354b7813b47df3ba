"""Reward modes by their published names, and which of them cannot differ."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from anygrpo.errors import ConfigError, suggestion
from anygrpo.selection.settings import RewardConfig
from anygrpo.spoken import Text

TOLERANCE = 1e-4
"""Of z-scores: two modes' advantages in float32 that are closer are the same."""
PARTS = ("correct", "accuracy_score", "gt_prob", "relevance", "beam_score", "info_score", "score")
"""h, s, g, rho, b, InfoScore, a scorer's own number: what a scored selection may carry."""

SYNONYMS = {"separated": "hard_plus_soft_v2", "hard_plus_gtprob": "hard01_plus_gtprob"}
"""Two published names of one function."""

_Mode = Callable[[dict[str, Tensor], RewardConfig], Tensor]


def _soft(config: RewardConfig) -> float:
    published = 0.5 if config.mode == "hard_plus_gtprob_plus_rel" else 1.0
    return published if config.soft is None else config.soft


def _alpha(config: RewardConfig) -> float:
    return config.beam if config.alpha is None else config.alpha


def _beta(config: RewardConfig) -> float:
    return config.hard if config.beta is None else config.beta


MODES: dict[str, _Mode] = {
    "hard_plus_soft": lambda x, w: w.hard * x["correct"] + _soft(w) * x["accuracy_score"],
    "hard_plus_soft_v2": lambda x, w: 2 * w.hard * x["correct"] + _soft(w) * x["accuracy_score"],
    "hard_only": lambda x, w: w.hard * x["correct"],
    "soft_only": lambda x, w: _soft(w) * x["accuracy_score"],
    "hard01_plus_gtprob": lambda x, w: w.hard * x["correct"] + _soft(w) * x["gt_prob"],
    "hard01_plus_gtprob_separated": lambda x, w: 2 * w.hard * x["correct"] + _soft(w) * x["gt_prob"],
    "hard_plus_gtprob_plus_rel": lambda x, w: (
        w.hard * x["correct"] + _soft(w) * x["gt_prob"] + w.relevance * (1 - x["correct"]) * x["relevance"]
    ),
    "legacy": lambda x, w: _alpha(w) * x["beam_score"] + _beta(w) * x["correct"],
    "legacy_pm1": lambda x, w: _alpha(w) * x["beam_score"] + _beta(w) * (2 * x["correct"] - 1),
    "info_score": lambda x, w: _soft(w) * x["info_score"],
    "score": lambda x, w: _soft(w) * x["score"],
}
MODES["hard_plus_gtprob"] = MODES["hard01_plus_gtprob"]
MODES["separated"] = MODES["hard_plus_soft_v2"]

NEEDS: dict[str, tuple[str, ...]] = {
    "hard_plus_soft": ("correct", "accuracy_score"),
    "hard_plus_soft_v2": ("correct", "accuracy_score"),
    "separated": ("correct", "accuracy_score"),
    "hard_only": ("correct",),
    "soft_only": ("accuracy_score",),
    "hard01_plus_gtprob": ("correct", "gt_prob"),
    "hard01_plus_gtprob_separated": ("correct", "gt_prob"),
    "hard_plus_gtprob_plus_rel": ("correct", "gt_prob", "relevance"),
    "legacy": ("correct", "beam_score"),
    "legacy_pm1": ("correct", "beam_score"),
    "info_score": ("info_score",),
    "score": ("score",),
    "hard_plus_gtprob": ("correct", "gt_prob"),
}


def reward(parts: dict[str, Tensor], config: RewardConfig) -> Tensor:
    """The reward of selections from their parts (tensors of one shape).

    Raises:
        ConfigError: an unknown mode, or a part that these selections don't carry.
    """
    if config.mode not in MODES:
        raise ConfigError(
            Text(f"unknown reward mode {config.mode!r}", f"未知的奖励方式 {config.mode!r}"),
            suggestion(config.mode, MODES),
        )
    parts = _one_number(parts, NEEDS[config.mode])
    missing = [name for name in NEEDS[config.mode] if name not in parts]
    if missing:
        possible = sorted(mode for mode, needs in NEEDS.items() if all(n in parts for n in needs))
        raise ConfigError(
            Text(
                f"reward mode {config.mode!r} needs {missing}, these selections carry {sorted(parts)}",
                f"奖励方式 {config.mode!r} 需要 {missing}，这些选择带有 {sorted(parts)}",
            ),
            Text("modes that these data allow: " + ", ".join(possible), f"这些数据可用的方式：{', '.join(possible)}"),
        )
    return MODES[config.mode](parts, config)


def _one_number(parts: dict[str, Tensor], needs: tuple[str, ...]) -> dict[str, Tensor]:
    """A file's score_list (`info_score`) and the bare number of a judge (`score`) are one thing under two names: a
    reward that wants one of them takes the other where it is alone."""
    numbers = ("info_score", "score")
    if len(needs) == 1 and needs[0] in numbers and needs[0] not in parts:
        other = numbers[1 - numbers.index(needs[0])]
        return parts | ({needs[0]: parts[other]} if other in parts else {})
    return parts


def equivalent_modes(parts: dict[str, Tensor], valid: Tensor) -> list[list[str]]:
    """Published modes (at their default weights) that give the same z-scored advantages on these groups.

    With two reward levels in a group every increasing map of them is affine, and z-scores do not see it.

    Args:
        parts: [P, G] each. valid: [P, G].

    Returns:
        Classes of two modes and more, each in the order of `MODES`.
    """
    classes: list[tuple[Tensor, list[str]]] = []
    for mode in MODES:
        if any(name not in parts for name in NEEDS[mode]):
            continue
        z = _zscore(reward(parts, RewardConfig(mode=mode)), valid)  # type: ignore[arg-type]
        same = next((names for other, names in classes if (z - other).abs().max() <= TOLERANCE), None)
        if same is None:
            classes.append((z, [mode]))
        else:
            same.append(mode)
    return [names for _, names in classes if len(names) > 1]


def _zscore(rewards: Tensor, valid: Tensor) -> Tensor:
    n = valid.sum(-1, keepdim=True).clamp_min(1)
    rewards = rewards.double()
    centred = torch.where(valid, rewards - torch.where(valid, rewards, 0.0).sum(-1, keepdim=True) / n, 0.0)
    std = (centred.square().sum(-1, keepdim=True) / n).sqrt()
    return torch.where(std > 1e-9, centred / std.clamp_min(1e-30), 0.0)
