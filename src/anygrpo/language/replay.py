"""Given answers in place of sampled ones."""

from __future__ import annotations

import torch
from torch import Tensor

from anygrpo.core.rollout import Tree
from anygrpo.core.task import Stored
from anygrpo.language.generation import Generation


def given(answers: list[list[list[int]]]) -> Generation:
    """As if they had been generated, without log-probs."""
    flat = [ids for row in answers for ids in row]
    lengths = torch.tensor([len(ids) for ids in flat])
    width = max(int(lengths.max()), 1)
    ids = torch.tensor([row + [0] * (width - len(row)) for row in flat])
    inside = torch.arange(width) < lengths[:, None]
    return Generation(ids, lengths, inside, torch.zeros(ids.shape), torch.ones(len(flat), dtype=torch.bool))


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
