"""What is for speed alone, chosen where a recipe leaves it open: tokens of a training block, rows decoded at once.

On a GPU a training pass of few tokens waits for the host's launches, and one of many tokens for memory. So blocks of
one group, two, four ... of the first step's own rows are tried, forwards and backwards, and the smallest is taken that
is within `WORTH` of the best; a size that the free memory would not hold is not tried. Rows decoded at once follow from
the bytes of their keys and values. On a CPU nothing is tried, so that a recipe gives the same numbers every time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from anygrpo.core.tree import Tree
from anygrpo.language.compute.log_probs import RowLengths
from anygrpo.language.engine.builtin import BuiltinEngine
from anygrpo.language.engine.shapes import AHEAD

if TYPE_CHECKING:
    from anygrpo.language.policy import CausalLM

TOKENS = 4096
"""Tokens of a block where nothing was tried."""

SPARE = 0.85
"""Share of the free memory that blocks and caches may fill."""

WORTH = 0.98
"""A block twice as large is taken where a token's time falls at least to this share. Fewer blocks save more than the
trial of one shows: between two the GPU waits for the host (two blocks of .16 s: .38 s of a step; one of .31: .33)."""

STEP = 256
"""Budgets are multiples of it."""


@dataclass(frozen=True)
class Block:
    """One trial: tokens, seconds forwards and backwards, and the most bytes it held beside what was there."""

    tokens: int
    seconds: float
    peak: int


@dataclass(frozen=True)
class Choice:
    """Tokens of a block, and the trials that the choice rests on."""

    tokens: int
    trials: tuple[Block, ...]


def choose(groups: int, trial: Callable[[int], Block], room: int, most: int) -> Choice:
    """The tokens of a block.

    Args:
        groups: of the step. trial: number of groups -> what a block of so many took.
        room: bytes that a block may take. most: tokens that a step of this recipe can have.
    """
    tried, count = [trial(1)], 1
    best = tried[0]
    while count < groups:
        before, count = count, min(2 * count, groups)
        if _bytes(tried, tried[-1].tokens * count / before) > room:
            break
        tried.append(trial(count))
        if tried[-1].seconds / tried[-1].tokens > WORTH * best.seconds / best.tokens:
            break
        best = tried[-1]
    # The whole step is one block: so it stays when answers become longer, as far as memory goes.
    whole = count == groups and best is tried[-1]
    tokens = min(most, _tokens(tried, room)) if whole else 0
    return Choice(-(-max(tokens, best.tokens) // STEP) * STEP, tuple(tried))


def _slope(tried: list[Block]) -> float:
    """Bytes a token: of the last two trials, or of the only one with all that is constant in it (too many)."""
    if len(tried) == 1:
        return max(tried[0].peak / tried[0].tokens, 1.0)
    a, b = tried[-2:]
    return max((b.peak - a.peak) / max(b.tokens - a.tokens, 1), 1.0)


def _bytes(tried: list[Block], tokens: float) -> float:
    return tried[-1].peak + _slope(tried) * (tokens - tried[-1].tokens)


def _tokens(tried: list[Block], room: int) -> int:
    return int(tried[-1].tokens + (room - tried[-1].peak) / _slope(tried))


def settle(policy: CausalLM, samples: Tree, beside: int) -> str:
    """See `Policy.settle`. Where rows are sharded over GPUs passes need every rank, and nothing is tried."""
    if policy.config.token_budget != "auto" or held_budget(policy.speed) or not _tries(policy):
        return ""
    try:
        choice, free = settle_blocks(policy, samples, beside)
    except torch.OutOfMemoryError:
        for p in policy.parameters():
            p.grad = None
        torch.cuda.empty_cache()
        policy.speed = {**policy.speed, "token_budget": TOKENS}
        return f"speed: blocks of {TOKENS:,} tokens; one group of this step does not fit in this GPU's memory at once"
    paths = policy.scorer.paths
    policy.speed = {
        **policy.speed,
        "token_budget": choice.tokens,
        "trials": [[b.tokens, round(b.seconds, 4), b.peak] for b in choice.trials],
        "attention": "shared" if paths.ability.shared else "plain",
        "kernels": list(paths.kernels),
        "threads": torch.get_num_threads(),
    }
    tried = ", ".join(f"{b.tokens:,} in {b.seconds:.2f} s" for b in choice.trials)
    rows = policy.config.decode_rows or policy.speed.get("decode_rows")
    return (
        f"speed: blocks of {choice.tokens:,} tokens (tried {tried}; {free / 1e9:.0f} GB free), "
        f"{f'{rows} rows' if rows else 'all rows'} decoded at once, attention {policy.speed['attention']}, "
        f"kernels {', '.join(paths.kernels) or 'none'}"
    )


def held_budget(speed: Mapping[str, Any]) -> int | None:
    """Tokens of a block chosen before; None where none were, or what a resumed run's file holds is no such number."""
    held = speed.get("token_budget")
    return held if _counted(held) else None


def _counted(held: Any) -> bool:
    return type(held) is int and held > 0


def _tries(policy: CausalLM) -> bool:
    return policy.scorer.device.type == "cuda" and not any(_sharded(p) for p in policy.parameters())


def _sharded(p: torch.Tensor) -> bool:
    return hasattr(p, "full_tensor")


def decode_rows(policy: CausalLM, prompts: list[list[int]], group: int) -> int | None:
    """Rows decoded at once: the recipe's number, or on a GPU what fitted in its free memory at the first sampling."""
    config, weights = policy.config, policy.weights
    if config.decode_rows or policy.scorer.device.type != "cuda" or not isinstance(policy.engine, BuiltinEngine):
        return config.decode_rows
    held = policy.speed.get("decode_rows", 0)
    if held is not None and not _counted(held):
        trained = sum(p.numel() for p in policy.parameters())
        room = int(SPARE * free_bytes()) - 12 * trained  # gradients and moments are still to come
        text, longest = weights.config.get_text_config(), max(map(len, prompts))
        rows = rows_that_fit(text, weights.dtype, longest, config.max_new_tokens, group, room)
        policy.speed = {**policy.speed, "decode_rows": rows}
    return policy.speed["decode_rows"]


def settle_blocks(policy: CausalLM, samples: Tree, beside: int) -> tuple[Choice, int]:
    """(the choice for rows [N, ...] of a step, the free bytes it was made from), by trials on a GPU.

    Args:
        beside: bytes that the optimizer will take and has not taken yet.
    """
    groups, scorer = RowLengths.of(samples).groups(), policy.scorer
    longest = torch.full_like(samples["completion_lengths"], policy.config.max_new_tokens)
    free = free_bytes()
    room = int(SPARE * free) - beside

    def trial(count: int) -> Block:
        rows = [i for members in groups[:count] for i in members]
        part = {name: x[torch.tensor(rows, device=x.device)] for name, x in samples.items()}
        _passed(policy, part)  # the first pass of a size prepares what later ones find
        seconds, peak = _passed(policy, part)
        return Block(scorer.tokens(part), seconds, peak)  # as the plan counts that keeps the budget

    return choose(len(groups), trial, room, scorer.tokens({**samples, "completion_lengths": longest})), free


def _passed(policy: CausalLM, rows: Tree) -> tuple[float, int]:
    """(seconds, most bytes beside what was there) of a pass forwards and backwards; no gradient stays."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before, start = torch.cuda.memory_allocated(), time.perf_counter()
    policy.evaluate(rows, slice(0, rows["completion_ids"].shape[1])).log_probs.sum().backward()
    torch.cuda.synchronize()
    seconds, peak = time.perf_counter() - start, torch.cuda.max_memory_allocated() - before
    for p in policy.parameters():
        p.grad = None
    return seconds, peak


def free_bytes() -> int:
    """Of this process's GPU: not taken by anyone, or held by the allocator and unused."""
    return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()


def rows_that_fit(config: Any, dtype: torch.dtype, prompt: int, new: int, group: int, room: int) -> int | None:
    """Rows whose keys, values and logits fit in `room` bytes, in whole groups; None where the config does not say.

    Args:
        config: of the library, text part. prompt, new: tokens at most. group: rows that share a prompt.
    """
    heads = getattr(config, "num_key_value_heads", None) or getattr(config, "num_attention_heads", None)
    layers, hidden = getattr(config, "num_hidden_layers", None), getattr(config, "hidden_size", None)
    if not (heads and layers and hidden):
        return None
    size = getattr(config, "head_dim", None) or hidden // config.num_attention_heads
    token = 2 * layers * heads * size * dtype.itemsize
    # Own keys twice: buffers grow by doubling. Prompts wait beside those in hand. Logits four times in float32.
    row = token * (2 * new + AHEAD * prompt / group) + 16 * config.vocab_size
    return max(int(room / row) // group, 1) * group
