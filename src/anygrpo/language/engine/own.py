"""Generation by the library itself, for models whose cache or padding is of a kind of its own. Rows of one length at a
time, so nothing is padded; tokens are drawn by us, from the same random numbers as everywhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.language.compute.head import Head
from anygrpo.language.compute.paths import Paths
from anygrpo.language.compute.pictures import shown_to
from anygrpo.language.compute.support import draw, restrict
from anygrpo.language.engine.rows import Rows, uniforms
from anygrpo.language.generation import Generation, Sampling, Turn


@torch.no_grad()
def generate_own(
    model: nn.Module,
    head: Head,
    prompts: list[list[int]],
    group_size: int,
    sampling: Sampling,
    seed: int,
    turn: Turn | None,
    text: Callable[[list[int]], str] | None,
    paths: Paths,
) -> Generation:
    """`group_size` completions of each prompt; `paths.sampling` is "cached" or "whole"."""
    device = next(model.parameters()).device
    every = [ids for ids in prompts for _ in range(group_size)]
    rows = Rows(len(every), sampling, turn, text)
    noise = uniforms(len(every), sampling, seed, device)
    start = time.perf_counter()
    for size in sorted(set(map(len, every))):
        members = [i for i, ids in enumerate(every) if len(ids) == size]
        limit = sampling.rows or len(members)
        for part in (members[a : a + limit] for a in range(0, len(members), limit)):
            ids = torch.tensor([every[i] for i in part], device=device)
            step = _Step(rows, noise, part)
            if paths.sampling == "cached":
                _by_library(model, ids, step)
            else:
                _whole(model, head, ids, step, paths)
    return rows.finish({"decode": time.perf_counter() - start})


class _Step:
    """Draws the next token of each member: logits [R, V] and its place -> the ids that are fed [R]."""

    def __init__(self, rows: Rows, noise: Tensor | None, members: list[int]) -> None:
        self.rows, self.noise, self.members = rows, noise, members

    def __call__(self, logits: Tensor, place: int) -> Tensor:
        decision = torch.full((len(logits),), place, device=logits.device)
        z = restrict(logits, self.rows.sampling.support, decision)
        token, log_prob = draw(z, None if self.noise is None else self.noise[self.members, place])
        return self.rows.take(self.members, token, log_prob)

    @property
    def over(self) -> bool:
        return not any(self.rows.alive(self.members))


def _whole(model: nn.Module, head: Head, ids: Tensor, step: _Step, paths: Paths) -> None:
    """Every row from its beginning for each token: slow, and right for any causal model."""
    for place in range(step.rows.sampling.max_new_tokens):
        states, _ = paths.states(model, input_ids=ids, use_cache=False)
        fed = step(head.logits(states[:, -1]), place)
        if step.over:
            return
        ids = torch.cat([ids, fed[:, None]], 1)


def _by_library(model: Any, ids: Tensor, step: _Step) -> None:
    """The library's `generate`, whose choice is always the token that we drew."""
    from transformers import GenerationConfig

    start = ids.shape[1]
    ids, more = shown_to(model, ids)

    def drawn(input_ids: Tensor, scores: Tensor) -> Tensor:
        fed = step(scores, input_ids.shape[1] - start)
        return torch.full_like(scores, float("-inf")).scatter_(1, fed[:, None], 0.0)

    def over(input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        return torch.full((len(input_ids),), step.over, device=input_ids.device)

    held = model.generation_config
    # What the model's own settings would change of the distribution (penalties, forced tokens) is not sampled here.
    model.generation_config = GenerationConfig()
    try:
        settings = GenerationConfig(max_new_tokens=step.rows.sampling.max_new_tokens, do_sample=False, use_cache=True)
        mask = torch.ones_like(ids)
        model.generate(
            ids,
            attention_mask=mask,
            generation_config=settings,
            logits_processor=[drawn],
            stopping_criteria=[over],
            **more,
        )
    finally:
        model.generation_config = held
