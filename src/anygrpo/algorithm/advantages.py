"""Advantages from rewards, [P, G] to [P, G]: P prompts, G samples of each. Tensors in, tensors out.

Every function works in float64, looks only at valid samples, and decides whether a group is constant by its spread
(`is_constant`) before anything is divided. Nothing here adds an epsilon to a denominator unless asked to (`epsilon`
exists to reproduce other frameworks).

Samples that are invalid, or whose reward is not finite, get 0 and leave every mean and standard deviation. A group with
no spread, or with fewer than two valid samples, gets 0 from every normaliser that compares inside the group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anygrpo.algorithm.normalisers import ADVANTAGES, BY_PART, AdvantageOptions, Normaliser, rank, weighted_parts
from anygrpo.algorithm.statistics import Memory, is_constant
from anygrpo.errors import AnygrpoError, ConfigError, suggestion
from anygrpo.spoken import Text


@dataclass(frozen=True)
class Advantages:
    """What `compute` returns.

    Attributes:
        values: [P, G] float32; 0 where a sample is invalid.
        constant: [P] bool: no spread among the group's valid rewards (fewer than two valid ones included); for
            normalisers of parts, no spread in any part.
        clipped: [P, G] bool: touched by `clip`.
        memory: what "history" or "running" keeps for the next step, this batch included; with other normalisers the
            moving statistics as they were given.
    """

    values: Tensor
    constant: Tensor
    clipped: Tensor
    memory: Memory


def compute(
    name: str | Normaliser, rewards: Tensor, valid: Tensor, options: AdvantageOptions | None = None
) -> Advantages:
    """Advantages of all groups of one step. The batch-wide normalisers need the groups of all ranks at once.

    Args:
        name: a key of `ADVANTAGES`, or a function of one's own with a normaliser's signature.
        rewards: [P, G], any float type.
        valid: [P, G] bool.

    Raises:
        ConfigError: an unknown name, or an option that this normaliser cannot use.
        AnygrpoError: shapes that do not agree.
    """
    if isinstance(name, str) and name not in ADVANTAGES:
        raise ConfigError(Text(f"unknown advantage {name!r}", f"未知的优势 {name!r}"), suggestion(name, ADVANTAGES))
    if rewards.dim() != 2 or rewards.shape != valid.shape:
        raise AnygrpoError(
            Text(
                f"rewards {tuple(rewards.shape)} and valid {tuple(valid.shape)} must both be [P, G]",
                f"奖励 {tuple(rewards.shape)} 与 valid {tuple(valid.shape)} 都应为 [P, G]",
            )
        )
    o = options or AdvantageOptions()
    valid = valid.bool() & torch.isfinite(rewards)
    x = torch.where(valid, rewards.double(), 0.0)
    if name == "running":
        o = replace(o, running=o.running.updated(x[valid]))
    if name == "history" and o.prompts is not None:
        o = replace(o, history=o.history.updated(o.prompts, x, valid))
    normaliser = ADVANTAGES[name] if isinstance(name, str) else name
    values = torch.where(valid, normaliser(x, valid, o), 0.0)
    clip = math.inf if o.clip is None else o.clip
    parts = list(weighted_parts(o).values()) or [torch.zeros_like(x)] if name in BY_PART else [x]
    constant = [is_constant(part, valid & torch.isfinite(part)) for part in parts]
    memory: Memory = o.history if name == "history" else o.running
    return Advantages(values.clamp(-clip, clip).float(), torch.stack(constant).all(0), values.abs() > clip, memory)


def reward_weights(
    rewards: Tensor, valid: Tensor, temperature: float, *, ranked: bool = False, top_one: bool = False
) -> Tensor:
    """Weights of reward-weighted cross-entropy (RCE): n x softmax(r / temperature) over the n valid samples. [P, G].

    Their mean over a group's valid samples is 1, so that a mean over samples of (weight x cross-entropy) is the sum
    over candidates of softmax x cross-entropy. `ranked` puts `rank` in place of r; `top_one` gives all to the best
    sample (shared by ties). Constant groups get equal weights.

    Raises:
        ConfigError: temperature <= 0.
    """
    if temperature <= 0:
        raise ConfigError(
            Text(f"RCE temperature {temperature}", f"RCE 的温度为 {temperature}"),
            Text("give a temperature > 0 (or top_one)", "请给出大于 0 的温度（或 top_one）"),
        )
    valid = valid.bool() & torch.isfinite(rewards)
    scores = rank(rewards.double(), valid, AdvantageOptions()) if ranked else rewards.double()
    scores = torch.where(valid, scores, -math.inf)
    best = scores.amax(1, keepdim=True)
    raw = (scores == best).double() if top_one else torch.exp((scores - best) / temperature)
    raw = torch.where(valid, raw, 0.0)
    n = valid.sum(1, keepdim=True)
    return (n * raw / raw.sum(1, keepdim=True).clamp(min=1.0)).float()  # the best has 1: below that none is valid
