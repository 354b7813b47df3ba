"""Generation with any causal model and the library's own cache: the fallback, and the yardstick for the fast path."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from anygrpo.language.compute.bodies import body_of
from anygrpo.language.compute.capability import Ability
from anygrpo.language.compute.head import Head
from anygrpo.language.compute.output_layer import HeadForm
from anygrpo.language.compute.paths import Paths
from anygrpo.language.compute.support import draw, restrict
from anygrpo.language.engine.rows import Rows, uniforms
from anygrpo.language.generation import Generation, Sampling, Turn


@torch.no_grad()
def generate_plain(
    model: nn.Module,
    head: Head,
    prompts: list[list[int]],
    group_size: int,
    sampling: Sampling,
    seed: int,
    turn: Turn | None = None,
    text: Callable[[list[int]], str] | None = None,
    paths: Paths | None = None,
) -> Generation:
    """`group_size` completions of each prompt: left padding, one cache row a sample, finished rows leave."""
    from transformers import DynamicCache

    paths = paths or Paths(Ability(False), HeadForm())
    device = next(model.parameters()).device
    body = model if paths.form is None else body_of(model)
    keyword = "cache" if "cache" in inspect.signature(body.forward).parameters else "past_key_values"
    every = [ids for ids in prompts for _ in range(group_size)]
    rows = Rows(len(every), sampling, turn, text)
    noise = uniforms(len(every), sampling, seed, device)
    longest = max(map(len, every))
    ids = torch.tensor([[0] * (longest - len(r)) + r for r in every], device=device)
    seen = torch.tensor([[0] * (longest - len(r)) + [1] * len(r) for r in every], device=device)
    cache, clock, seconds = DynamicCache(config=model.config), time.perf_counter(), {}  # type: ignore[arg-type]
    active = torch.arange(len(every), device=device)
    position = (seen.cumsum(1) - 1).clamp(min=0)
    for step in range(sampling.max_new_tokens):
        states, _ = paths.states(
            model, input_ids=ids, attention_mask=seen, position_ids=position, use_cache=True, **{keyword: cache}
        )
        if step == 0:
            seconds["prefill"], clock = time.perf_counter() - clock, time.perf_counter()
        token, log_prob = _next(head, states[:, -1], sampling, step, noise, active)
        token = rows.take(active.tolist(), token, log_prob)
        stay = torch.tensor(rows.alive(active.tolist()), device=device)
        if not stay.any():
            break
        if not stay.all():
            keep = stay.nonzero()[:, 0]
            cache.reorder_cache(keep)  # type: ignore[arg-type]  # every kind of layer has it
            active, seen, token, position = active[keep], seen[keep], token[keep], position[keep]
        ids = token[:, None]
        seen = torch.cat([seen, seen.new_ones(len(active), 1)], 1)
        position = position[:, -1:] + 1
    return rows.finish(seconds | {"decode": time.perf_counter() - clock})


def _next(
    head: Head, hidden: Tensor, sampling: Sampling, step: int, noise: Tensor | None, active: Tensor
) -> tuple[Tensor, Tensor]:
    decision = torch.full((len(hidden),), step, device=hidden.device)
    z = restrict(head.logits(hidden), sampling.support, decision)
    return draw(z, None if noise is None else noise[active, step])
