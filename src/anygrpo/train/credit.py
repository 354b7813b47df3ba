"""What turns and parts earned, as advantages of their decisions."""

from __future__ import annotations

import torch
from torch import Tensor

from anygrpo.algorithm import credit
from anygrpo.core.choices import chosen
from anygrpo.core.rollout import Rollout
from anygrpo.errors import ConfigError
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.spoken import Text

PAYS = "environment"
"""The reward that is the sum of what an environment paid."""


def credited(rollout: Rollout, mask: Tensor, a: AlgorithmConfig, compare: credit.Compare) -> Tensor:
    """[P, G, T] advantages.

    Args:
        mask: [P, G, T] decisions that count. compare: the recipe's advantage.

    Raises:
        ConfigError: the environment paid for turns, and the recipe's rewards leave that out.
    """
    paid = rollout.turn_rewards
    if a.credit == "parts":
        return _of_parts(rollout, mask, compare)
    if bool(paid.isfinite().any()) and PAYS not in rollout.components:
        raise ConfigError(
            Text(
                f"credit = {a.credit!r}, but what the environment pays is no reward of this task",
                f"credit = {a.credit!r}，但环境所付的不是这个任务的奖励",
            ),
            Text(
                f'add [[task.rewards]] with kind = "{PAYS}", and no other name',
                f'请加上 kind = "{PAYS}" 的 [[task.rewards]]，不要用别的名称',
            ),
        )
    exists = credit.existing(rollout.turn, mask, max(paid.shape[-1], int(rollout.turn.max()) + 1))
    wide = torch.nn.functional.pad(paid, (0, exists.shape[-1] - paid.shape[-1]))  # 0: nothing was paid
    rewards = credit.by_turn(rollout.rewards, wide, rollout.weights.get(PAYS, 1.0), exists)
    made = chosen("credit", a.credit).function(rewards, exists, compare, a.discount)
    return credit.spread(made, rollout.turn, mask)


def _of_parts(rollout: Rollout, mask: Tensor, compare: credit.Compare) -> Tensor:
    """[P, G, T]: the part's own reward, compared at the same part of the group.

    Raises:
        ConfigError: the task pays no parts, or other parts than the policy decides.
    """
    paid, decided = rollout.turn_rewards, int(rollout.turn.max()) + 1
    if not bool(paid.isfinite().any()):
        cure = Text(
            "task.reward_patch pays the patches of a picture (a task of your own: Scores.parts)",
            "task.reward_patch 按图像的块付奖励（自己的任务用 Scores.parts）",
        )
        raise ConfigError(
            Text('credit = "parts", but the task pays no parts', 'credit = "parts"，但任务没有按部分付奖励'), cure
        )
    if paid.shape[-1] != decided:
        raise ConfigError(
            Text(
                f'credit = "parts": the task pays {paid.shape[-1]} parts, and the policy decides {decided}',
                f'credit = "parts"：任务付 {paid.shape[-1]} 个部分，策略决定 {decided} 个',
            ),
            Text(
                "take task.reward_patch = policy.patch, and gates that are all maps of that size (per element)",
                "请设 task.reward_patch = policy.patch，且门控都是该大小的图（逐元素）",
            ),
        )
    exists = credit.existing(rollout.turn, mask, decided) & paid.isfinite()
    made = credit.parts(torch.where(exists, paid, 0.0), exists, compare, 0.0)
    return credit.spread(made, rollout.turn, mask)
