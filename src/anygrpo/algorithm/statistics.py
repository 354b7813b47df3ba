"""Statistics of rewards inside groups, float64. P prompts, G samples of each; only valid samples count."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

TOLERANCE = 2e-7
"""Relative spread at or below which a group counts as constant: between one and two float32 spacings, so that rewards
that differ only by the rounding of a float32 sum are equal, and 1e7 + {0, 1, 2, 3} are not. A fact of float32, not a
setting: the filter `minimum_spread` takes out groups whose spread is noise of the reward's own."""


@dataclass(frozen=True)
class RunningState:
    """Exponential moving mean and variance of rewards, without the bias of the zero start.

    `weight` is the sum of the weights so far, 1 - decay^n: dividing by it is Adam's bias correction.
    """

    mean: float = 0.0
    variance: float = 0.0
    weight: float = 0.0
    decay: float = 0.99

    def updated(self, rewards: Tensor) -> RunningState:
        """The state after a batch of rewards [n]; unchanged when n = 0.

        Two weighted populations are merged (Chan et al. 1979), so that rewards near 1e7 keep their variance.
        """
        if rewards.numel() == 0:
            return self
        x = rewards.double()
        old, new = self.decay * self.weight, 1.0 - self.decay
        total = old + new
        a, b = old / total, new / total
        gap = float(x.mean()) - self.mean
        variance = a * self.variance + b * float(x.var(correction=0)) + a * b * gap * gap
        return RunningState(self.mean + b * gap, variance, total, self.decay)


@dataclass(frozen=True)
class PromptHistory:
    """The last rewards of each prompt, kept between steps (DDPO's per-prompt tracker, arXiv 2305.13301).

    Attributes:
        rewards: prompt's number -> its rewards, newest last.
        size: most that are kept of one prompt.
    """

    rewards: Mapping[int, tuple[float, ...]] = field(default_factory=dict[int, tuple[float, ...]])
    size: int = 16

    def updated(self, prompts: Tensor, rewards: Tensor, valid: Tensor) -> PromptHistory:
        """With the valid rewards [P, G] of prompts [P]; a prompt that comes twice adds both groups."""
        known = dict(self.rewards)
        for key, row, usable in zip(_numbers(prompts), rewards.double().cpu(), valid.cpu()):
            known[key] = (*known.get(key, ()), *map(float, row[usable]))[-self.size :]
        return replace(self, rewards=known)

    def rows(self, prompts: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """(rewards, which places hold one), [P, size] each, of prompts [P]; on the device of `like`."""
        values, held = like.new_zeros(len(prompts), self.size), like.new_zeros(len(prompts), self.size).bool()
        for i, key in enumerate(_numbers(prompts)):
            past = self.rewards.get(key, ())[-self.size :]
            values[i, : len(past)], held[i, : len(past)] = like.new_tensor(past), True
        return values, held

    def known(self, prompts: Tensor, least: int) -> int:
        """How many of prompts [P] have at least so many rewards."""
        return sum(len(self.rewards.get(key, ())) >= least for key in _numbers(prompts))


def _numbers(prompts: Tensor) -> list[int]:
    return [int(key) for key in prompts]


Memory = RunningState | PromptHistory
"""What an advantage keeps from step to step."""


def is_constant(rewards: Tensor, valid: Tensor) -> Tensor:
    """[P] bool: max - min <= TOLERANCE x max |reward| among the valid rewards of a group.

    Groups with fewer than two valid samples are constant: nothing in them can be compared.
    """
    x = rewards.double()
    high = torch.where(valid, x, -math.inf).amax(1)
    low = torch.where(valid, x, math.inf).amin(1)
    scale = torch.where(valid, x.abs(), 0.0).amax(1)
    return high - low <= TOLERANCE * scale  # one valid sample: 0; none: -inf


def group_mean(x: Tensor, valid: Tensor) -> Tensor:
    """[P, 1] mean of the valid samples of each group; exact to rounding for any offset."""
    n = valid.sum(1, keepdim=True).clamp(min=1)
    rough = torch.where(valid, x, 0.0).sum(1, keepdim=True) / n
    return rough + torch.where(valid, x - rough, 0.0).sum(1, keepdim=True) / n


def group_std(x: Tensor, valid: Tensor, ddof: int) -> Tensor:
    """[P, 1] standard deviation of the valid samples of each group."""
    n = valid.sum(1, keepdim=True)
    squares = torch.where(valid, (x - group_mean(x, valid)).square(), 0.0).sum(1, keepdim=True)
    return (squares / (n - ddof).clamp(min=1)).sqrt()
