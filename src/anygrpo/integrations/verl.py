"""Our advantages and objectives in verl's registries, for training at Ray scale.

    import anygrpo.integrations.verl as ours
    ours.register()
    # then: algorithm.adv_estimator=anygrpo_zscore  actor_rollout_ref.actor.policy_loss.loss_mode=anygrpo_ppo

Call `register` in every process that computes advantages or losses (verl's `external_lib` names a module to import
there: this module registers on import under the environment variable ANYGRPO_VERL=1). Loss aggregation stays verl's.
Checked against the registries of verl 0.9.1.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from anygrpo.algorithm import advantages
from anygrpo.algorithm.normalisers import ADVANTAGES, BY_PART
from anygrpo.algorithm.objectives import OBJECTIVES, ClipSettings
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

PREFIX = "anygrpo_"

_STATEFUL = frozenset({"running", "history"})
OFFERED = tuple(name for name in ADVANTAGES if name not in BY_PART | _STATEFUL)
"""Advantages offered to verl: those that need neither reward components nor memory between steps."""


def register(core: Any = None) -> list[str]:
    """Put all of `OFFERED` and every objective in verl's registries, as `anygrpo_NAME`; returns the names.

    Args:
        core: the module with verl's registries; default `verl.trainer.ppo.core_algos`.

    Raises:
        ConfigError: verl is not installed.
    """
    if core is None:
        try:
            core = importlib.import_module("verl.trainer.ppo.core_algos")
        except ImportError as error:
            raise ConfigError(
                Text(f"verl cannot be imported: {error}", f"无法导入 verl：{error}"), "pip install verl"
            ) from None
    names = []
    for name in OFFERED:
        core.register_adv_est(PREFIX + name)(_estimator(name))
        names.append(PREFIX + name)
    for name in OBJECTIVES:
        if name in ("supervised", "rce"):
            continue
        core.register_policy_loss(PREFIX + name)(_policy_loss(name, core))
        names.append(PREFIX + name)
    return names


_ESTIMATORS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {}


def _estimator(name: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """The same function at every call: verl refuses a second one of the same name."""

    def compute(
        token_level_rewards: Tensor, response_mask: Tensor, index: Sequence[Any], config: Any = None, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """(advantages, returns), both [n, t], 0 at masked places. Rows with equal `index` are a group.

        Reads `config.anygrpo`, a table of `AdvantageOptions` (std_floor, clip, k, ddof).
        """
        rewards = token_level_rewards.sum(-1)
        grid, valid, place = grouped(rewards, index)
        values = advantages.compute(name, grid, valid, _options(config)).values
        rows = values[place[:, 0], place[:, 1]][:, None] * response_mask
        return rows, rows

    return _ESTIMATORS.setdefault(name, compute)


def _options(config: Any) -> advantages.AdvantageOptions:
    given = config.get("anygrpo", None) if hasattr(config, "get") else getattr(config, "anygrpo", None)
    return advantages.AdvantageOptions(**(given or {}))


def grouped(rewards: Tensor, index: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of unequal groups as a grid: (rewards [P, G], valid [P, G], place [n, 2] of each row)."""
    numbers: dict[Any, int] = {}
    sizes: list[int] = []
    place = []
    for key in index:
        p = numbers.setdefault(key, len(numbers))
        if p == len(sizes):
            sizes.append(0)
        place.append((p, sizes[p]))
        sizes[p] += 1
    where = torch.tensor(place, dtype=torch.int64, device=rewards.device).reshape(-1, 2)
    grid = rewards.new_zeros(len(sizes), max(sizes, default=0))
    valid = torch.zeros_like(grid, dtype=torch.bool)
    grid[where[:, 0], where[:, 1]] = rewards
    valid[where[:, 0], where[:, 1]] = True
    return grid, valid, where


def _policy_loss(name: str, core: Any) -> Callable[..., tuple[Tensor, dict[str, Any]]]:
    def compute(
        old_log_prob: Tensor,
        log_prob: Tensor,
        advantages: Tensor,
        response_mask: Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """verl's policy loss: (scalar, metrics); clip ranges are those of its actor config."""
        mask = response_mask.bool()
        made = OBJECTIVES[name](log_prob, old_log_prob, advantages, mask, _clip(config))
        loss = made.loss if rollout_is_weights is None else made.loss * rollout_is_weights
        shared = getattr(config, "global_batch_info", None) or {}
        total = core.agg_loss(loss_mat=loss, loss_mask=response_mask, loss_agg_mode=loss_agg_mode, **shared)
        n = mask.sum().clamp(min=1)
        log_ratio = torch.where(mask, (log_prob - old_log_prob).detach(), 0.0)
        return total, {
            "actor/pg_clipfrac": float((made.clipped_low | made.clipped_high).sum() / n),
            "actor/pg_clipfrac_lower": float(made.clipped_dual.sum() / n),
            "actor/ppo_kl": float(-log_ratio.sum() / n),
            "actor/anygrpo_guarded": float(made.guarded.sum()),
        }

    return compute


def _clip(config: Any) -> ClipSettings:
    low, high = getattr(config, "clip_ratio_low", None), getattr(config, "clip_ratio_high", None)
    both = getattr(config, "clip_ratio", None)
    both = 0.2 if both is None else both
    dual = getattr(config, "clip_ratio_c", None)
    return ClipSettings(both if low is None else low, both if high is None else high, dual)


if os.environ.get("ANYGRPO_VERL") == "1":
    register()
