"""Conversations of a rollout put beside it: what rewards read, whose sample is invalid and why, and numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from anygrpo.core.rollout import Rollout
from anygrpo.language.conversation import Conversations
from anygrpo.language.tasks.answer import Answer
from anygrpo.language.turns.held import Held


def recorded(rollout: Rollout, held: list[Held], conversations: Conversations, tools: bool) -> Rollout:
    """The rollout [P, G] of these P x G conversations; `tools`: there are some to call."""
    groups, size, _ = rollout.shape
    for one in held:
        conversations.keep(one.number, Answer(one.messages, one.rewards))
    numbers = torch.tensor([one.number for one in held]).view(groups, size)
    faults = {(i // size, i % size): one.fault for i, one in enumerate(held) if one.fault}
    valid = torch.tensor([not one.fault for one in held]).view(groups, size)
    calls, failed = sum(one.calls for one in held), sum(one.failed for one in held)
    info = {"turns/mean": sum(one.turns for one in held) / len(held)}
    if tools:
        info["tools/calls"] = calls / len(held)
    if calls:
        info["tools/failed"] = failed / calls
    turn, paid = _turns(rollout, held)
    info["time/environment"] = sum(one.spent for one in held)
    return replace(
        rollout,
        samples=rollout.samples | {"conversation": numbers},
        valid=rollout.valid & valid,
        reasons=rollout.reasons | faults,
        info=rollout.info | info,
        turn=turn,
        turn_rewards=paid,
    )


def _turns(rollout: Rollout, held: list[Held]) -> tuple[Tensor, Tensor]:
    """(turn of each decision [P, G, T], what the environment paid for each [P, G, K])."""
    mask = rollout.mask
    begins = mask & ~torch.nn.functional.pad(mask, (1, 0))[..., :-1]
    turn = (begins.long().cumsum(-1) - 1).clamp(min=0)
    most = max(1, *(one.turns for one in held))
    rows = [[math.nan if r is None else r for r in one.rewards] + [math.nan] * (most - one.turns) for one in held]
    return turn.to(torch.int16), torch.tensor(rows, dtype=torch.float32).view(*mask.shape[:2], most)
