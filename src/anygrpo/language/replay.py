"""Given answers in place of sampled ones."""

from __future__ import annotations

import torch
from torch import Tensor

from anygrpo.core.task import Stored
from anygrpo.core.tree import Tree
from anygrpo.language.generation import Generation
from anygrpo.language.prompts import Prompts
from anygrpo.language.tasks.answer import Answer

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
