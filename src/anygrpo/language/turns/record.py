"""Conversations of a rollout put beside it: what rewards read, whose sample is invalid and why, and numbers."""

from __future__ import annotations

from dataclasses import replace

import torch

from anygrpo.core.rollout import Rollout
from anygrpo.language.conversation import Conversations
from anygrpo.language.tasks.answer import Answer
from anygrpo.language.turns.driver import Held


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
    info["time/environment"] = sum(one.spent for one in held)
    return replace(
        rollout,
        samples=rollout.samples | {"conversation": numbers},
        valid=rollout.valid & valid,
        reasons=rollout.reasons | faults,
        info=rollout.info | info,
    )
