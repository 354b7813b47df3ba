"""From the rewards of a sample's turns to advantages of its decisions. P prompts, G samples, K turns, T decisions.

A turn is a stretch of decisions between two answers of an environment, which may pay each of them. What a sample
earned otherwise (a judge of the whole, a penalty) is the last turn's. All functions take `rewards` [P, G, K] and which
turns there are, `exists` [P, G, K], and return advantages [P, G, K] of turns, 0 where there is none; `spread` gives
each decision its turn's.

Sources: outcome and process supervision, DeepSeekMath, arXiv 2402.03300, sections 4.1.2 and 4.1.3; rewards to go,
Williams, "Simple statistical gradient-following algorithms", 1992; compared at the same turn of a group's samples, as
turn-level advantages are in Zeng et al., arXiv 2505.11821.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Compare = Callable[[Tensor, Tensor], Tensor]
"""(rewards [P, n], valid [P, n]) -> advantages [P, n]: the advantage that the recipe names."""


def by_turn(total: Tensor, paid: Tensor, weight: float, exists: Tensor) -> Tensor:
    """[P, G, K] rewards of turns: weight x what the environment paid, and at the last turn what is left of the total.

    Args:
        total: [P, G]: the samples' rewards; the sum over turns of what is returned.
        paid: [P, G, K], NaN where nothing was paid.
        weight: of the environment's rewards in the total.
        exists: [P, G, K] bool.
    """
    own = torch.where(exists & paid.isfinite(), paid, 0.0).double() * weight
    last = exists.long().cumsum(-1) == exists.sum(-1, keepdim=True)
    rest = total.double() - own.sum(-1)
    return own + torch.where(exists & last, rest[..., None], 0.0)


def to_go(rewards: Tensor, discount: float) -> Tensor:
    """[P, G, K]: sum over j >= k of discount^(j - k) r_j."""
    out = torch.zeros_like(rewards)
    coming = torch.zeros_like(rewards[..., 0])
    for k in reversed(range(rewards.shape[-1])):
        coming = rewards[..., k] + discount * coming
        out[..., k] = coming
    return out


def turns(rewards: Tensor, exists: Tensor, compare: Compare, discount: float) -> Tensor:
    """Discounted rewards to go, compared at each turn among the samples of a group that have it."""
    coming = to_go(rewards, discount)
    made = [compare(coming[..., k], exists[..., k]) for k in range(rewards.shape[-1])]
    return torch.where(exists, torch.stack(made, -1).to(rewards), 0.0)


def process(rewards: Tensor, exists: Tensor, compare: Compare, discount: float) -> Tensor:
    """Rewards of all turns of a group compared with one another; a turn has the (discounted) sum of its own and of
    those to come."""
    p, g, k = rewards.shape
    each = compare(rewards.reshape(p, g * k), exists.reshape(p, g * k)).reshape(p, g, k).to(rewards)
    return torch.where(exists, to_go(torch.where(exists, each, 0.0), discount), 0.0)


def parts(rewards: Tensor, exists: Tensor, compare: Compare, discount: float) -> Tensor:
    """Each part's own reward, compared with the same part of the group's other samples (a pixel's in PixelRL,
    Furuta et al., arXiv 1912.07190); no part is paid for another."""
    made = [compare(rewards[..., k], exists[..., k]) for k in range(rewards.shape[-1])]
    return torch.where(exists, torch.stack(made, -1).to(rewards), 0.0)


def outcome(rewards: Tensor, exists: Tensor, compare: Compare, discount: float) -> Tensor:
    """The sample's whole reward for each of its turns, compared in its group."""
    whole = compare(rewards.sum(-1), exists.any(-1)).to(rewards)
    return torch.where(exists, whole[..., None], 0.0)


def spread(values: Tensor, turn: Tensor, mask: Tensor) -> Tensor:
    """[P, G, T] of decisions from [P, G, K] of turns.

    Args:
        turn: [P, G, T] integers: the turn of each decision. mask: [P, G, T] bool.
    """
    made = values.gather(-1, turn.long().clamp(0, values.shape[-1] - 1))
    return torch.where(mask, made, 0.0).float()


def existing(turn: Tensor, mask: Tensor, count: int) -> Tensor:
    """[P, G, K] bool: turns with a decision that counts."""
    out = torch.zeros(*turn.shape[:2], count + 1, dtype=torch.bool, device=turn.device)
    place = torch.where(mask, turn.long(), count)
    return out.scatter(-1, place, True)[..., :count]
