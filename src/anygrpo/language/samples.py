"""What an engine generated as the samples of a rollout."""

from __future__ import annotations

import hashlib

import torch

from anygrpo.core.rollout import Rollout
from anygrpo.language.conversation import writers
from anygrpo.language.generation import Generation


def rollout_of(prompts: list[list[int]], group_size: int, made: Generation, limit: int, version: int) -> Rollout:
    """P x G completions, not yet scored, with the keys that `CausalLM.sample` names; `limit`: most new tokens."""
    count = len(prompts)
    grid = lambda x: x.reshape(count, group_size, *x.shape[1:])  # noqa: E731
    width = max(map(len, prompts))
    padded = torch.tensor([ids + [0] * (width - len(ids)) for ids in prompts])
    samples = {
        "prompt_ids": padded[:, None].repeat(1, group_size, 1),
        "prompt_lengths": torch.tensor([len(ids) for ids in prompts])[:, None].repeat(1, group_size),
        "completion_ids": grid(made.ids),
        "completion_lengths": grid(made.lengths),
        "group": torch.tensor([_number_of(ids) for ids in prompts])[:, None].repeat(1, group_size),
        "written_by": grid(writers(made.chosen, made.lengths)),
    }
    lengths = made.chosen.sum(1).float()  # of an environment's words nothing is the policy's
    info = {
        "length/mean": lengths.mean().item(),
        "length/max": lengths.max().item(),
        "length/min": lengths.min().item(),
        "truncated/share": 1.0 - made.ended.float().mean().item(),
    } | {f"time/{name}": value for name, value in made.seconds.items()}
    return Rollout.of(
        samples,
        grid(made.log_probs),
        grid(made.chosen),
        ended=grid(made.ended),
        version=torch.full((count, group_size), version) if made.version is None else grid(made.version),
        info=info,
        limit=limit,
    )


def _number_of(ids: list[int]) -> int:
    """The same number for the same prompt, also in another rollout: rows of joined rollouts are told apart."""
    return int.from_bytes(hashlib.blake2b(repr(ids).encode(), digest_size=7).digest(), "big")
