"""Generation that knows groups: a prompt is computed and kept once for all of its rows, and finished rows leave."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from anygrpo.language.compute.cache import GroupCache, Step, Uneven
from anygrpo.language.compute.head import Head
from anygrpo.language.compute.passes import forward, prefill
from anygrpo.language.compute.support import draw, restrict
from anygrpo.language.engine.rows import Rows, uniforms
from anygrpo.language.generation import Generation, Sampling, Turn

SHRINK = 0.875
"""Rows are moved together when this share or less of them is still growing: moving copies their keys and values."""


@torch.no_grad()
def generate_groups(
    model: nn.Module,
    head: Head,
    prompts: list[list[int]],
    group_size: int,
    sampling: Sampling,
    seed: int,
    turn: Turn | None = None,
    text: Callable[[list[int]], str] | None = None,
) -> Generation:
    """`group_size` completions of each prompt, as `plain.generate_plain` makes them, from the same random numbers."""
    total = len(prompts) * group_size
    device = next(model.parameters()).device
    rows = Rows(total, sampling, turn, text, None if turn is None else turn.patience)
    noise = uniforms(total, sampling, seed, device)
    seconds = {"prefill": 0.0, "decode": 0.0}
    for part in split(len(prompts), group_size, sampling.rows or total):
        clock = time.perf_counter()
        cache, hidden = prefill(
            model, [prompts[p] for p, _ in part], [len(r) for _, r in part], sampling.max_new_tokens
        )
        seconds["prefill"] += time.perf_counter() - clock
        clock = time.perf_counter()
        active = torch.tensor([r for _, members in part for r in members], device=device)
        lengths = torch.tensor([len(prompts[p]) for p, members in part for _ in members], device=device)
        _decode(model, head, cache, hidden, active, lengths, rows, noise)
        seconds["decode"] += time.perf_counter() - clock
    return rows.finish(seconds)


def split(prompts: int, group_size: int, limit: int) -> list[list[tuple[int, list[int]]]]:
    """Parts of at most `limit` rows: lists of (prompt, its rows there). Groups stay whole where they fit."""
    size = min(group_size, limit)
    pieces = [
        (p, list(range(p * group_size + a, p * group_size + min(a + size, group_size))))
        for p in range(prompts)
        for a in range(0, group_size, size)
    ]
    parts: list[list[tuple[int, list[int]]]] = []
    room = 0
    for piece in pieces:
        if room < len(piece[1]):
            parts.append([])
            room = limit
        parts[-1].append(piece)
        room -= len(piece[1])
    return parts


def _decode(
    model: nn.Module,
    head: Head,
    cache: GroupCache,
    hidden: Tensor,
    active: Tensor,
    lengths: Tensor,
    rows: Rows,
    noise: Tensor | None,
) -> None:
    """Grow the rows `active` [R] (indices into `rows` and `noise`) to their ends; `lengths` [R] are their prompts'.

    Rows go on side by side. One that waits for its reply feeds its last token again, which changes nothing, and is
    behind the others from then on.
    """
    sampling, present, device = rows.sampling, active.tolist(), hidden.device
    decision = torch.zeros(len(present), dtype=torch.long, device=device)
    while True:
        z = restrict(head.logits(hidden), sampling.support, decision)
        token, log_prob = draw(z, None if noise is None else noise[active, decision])
        token = rows.take(present, token, log_prob)
        alive = rows.alive(present)
        if not any(alive):
            return
        if sum(alive) <= SHRINK * len(alive):
            stay = torch.tensor(alive, device=device).nonzero()[:, 0]
            cache.keep(stay, max(rows.places(present)) + 1)
            active, lengths, token = active[stay], lengths[stay], token[stay]
            present = active.tolist()
            alive = [True] * len(present)
        places = rows.places(present)
        living = {place for place, lives in zip(places, alive) if lives}
        if len(living) == 1:
            place = living.pop()
            step, at = Step(cache, place), torch.full((len(present),), place, device=device)
        else:
            at = torch.tensor(places, device=device)
            step = Uneven(cache, at, max(places) + 1)
        hidden = forward(model, token, lengths + at, step)
        decision = (at + 1).clamp(max=sampling.max_new_tokens - 1)
