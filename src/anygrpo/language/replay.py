"""Given answers in place of sampled ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anygrpo.core.rollout import Rollout
from anygrpo.core.task import Stored
from anygrpo.core.tree import Tree
from anygrpo.language.generation import Generation
from anygrpo.language.prompts import Prompts
from anygrpo.language.samples import rollout_of
from anygrpo.language.tasks.answer import Answer
from anygrpo.language.turns.driver import Turns

Written = tuple[list[int], list[bool]]
"""Ids of a completion, and which of them are the policy's own."""


def given(answers: list[list[Written]]) -> Generation:
    """As if they had been generated, without log-probs."""
    flat = [one for row in answers for one in row]
    lengths = torch.tensor([len(ids) for ids, _ in flat])
    width = max(int(lengths.max()), 1)
    ids = torch.tensor([row + [0] * (width - len(row)) for row, _ in flat])
    own = torch.tensor([mine + [False] * (width - len(mine)) for _, mine in flat])
    return Generation(ids, lengths, own, torch.zeros(ids.shape), torch.ones(len(flat), dtype=torch.bool))


def written(prompts: Prompts, answer: str) -> Written:
    """A given answer as ids: a text is the policy's, of a conversation the assistant's turns are. What others say after
    the last of them is left out."""
    if not isinstance(answer, Answer):
        ids = prompts.answer(answer)
        return ids, [True] * len(ids)
    ids, own, others, calls = [], [], [], None
    for m in answer.messages:
        if m["role"] != "assistant":
            others.append(m)
            continue
        between = prompts.next_turn(others, calls) if others else []
        said = prompts.spoken({k: v for k, v in m.items() if k != "by"})
        ids += [*between, *said]
        own += [False] * len(between) + [True] * len(said)
        others, calls = [], m.get("tool_calls")
    return ids, own


def with_propensity(log_probs: Tensor, mask: Tensor, sums: list[list[float | None]]) -> Tensor:
    """Each token's shifted alike, so that a row's sum is the given one, where there is one."""
    out = log_probs.clone()
    for p, row in enumerate(sums):
        for g, total in enumerate(row):
            here = mask[p, g]
            if total is not None and here.any():
                out[p, g, here] += (total - log_probs[p, g, here].sum()) / here.sum()
    return out


def paid(stored: Stored, valid: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """(rewards [P, G], components by name) of ragged lists, 0 where a row is shorter."""

    def spread(rows: list[list[float]]) -> Tensor:
        out = torch.zeros(valid.shape)
        for p, row in enumerate(rows):
            out[p, : len(row)] = torch.tensor(row, dtype=torch.float32)
        return out

    rewards = torch.zeros(valid.shape) if stored.rewards is None else spread(stored.rewards)
    return rewards, {name: spread(rows) for name, rows in stored.components.items()}


def listed(prompts: list[list[int]], answers: list[list[int]], device: torch.device) -> Tree:
    """Samples [n, ...] of token ids given as lists, one answer a prompt."""
    width, longest = max(map(len, prompts)), max(1, *map(len, answers))
    samples = {
        "prompt_ids": torch.tensor([ids + [0] * (width - len(ids)) for ids in prompts]),
        "prompt_lengths": torch.tensor([len(ids) for ids in prompts]),
        "completion_ids": torch.tensor([ids + [0] * (longest - len(ids)) for ids in answers]),
        "completion_lengths": torch.tensor([len(ids) for ids in answers]),
        "group": torch.arange(len(prompts)),
    }
    return {name: x.to(device) for name, x in samples.items()}


def replayed(policy: Any, prompts: list[Any], stored: Stored) -> Rollout:
    """What `CausalLM.replay` gives."""
    begun = Turns(policy.talk, prompts, 1, 0).begun() if policy.talk and policy.talk.kind == "class" else prompts
    ids = policy.prompts.encode(begun, 0)
    size = max(map(len, stored.actions))
    none: Written = ([], [])
    answers = [[written(policy.prompts, a) for a in row] + [none] * (size - len(row)) for row in stored.actions]
    rollout = rollout_of(ids, size, given(answers), policy.config.max_new_tokens, policy.version)
    valid = torch.tensor([[g < len(row) for g in range(size)] for row in stored.actions])
    rows = {name: x.flatten(0, 1) for name, x in rollout.samples.items()}
    log_probs = torch.where(rollout.mask, policy.rescore(rows).view_as(rollout.log_probs), 0.0)
    if stored.log_probs is not None:
        log_probs = with_propensity(log_probs, rollout.mask, stored.log_probs)
    rewards, components = paid(stored, valid)
    new = {"log_probs": log_probs, "valid": valid, "rewards": rewards, "components": components}
    return Rollout(**{**rollout.__dict__, **new})
