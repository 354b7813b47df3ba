"""Passes of a model over packed tokens: of prompts, with their keys and values kept, and of any tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.language.compute.attention import Packed
from anygrpo.language.compute.bodies import body_of
from anygrpo.language.compute.cache import GroupCache
from anygrpo.language.compute.layout import opening_of, pack
from anygrpo.language.routers import widened


def prefill(model: nn.Module, prompts: list[list[int]], rows: list[int], width: int) -> tuple[GroupCache, Tensor]:
    """The prompts' keys and values, and the states [R, H] that predict each row's first token.

    Args:
        rows: rows of each prompt. width: completion tokens at most.
    """
    device = next(model.parameters()).device
    lengths = [len(ids) for ids in prompts]
    opening = opening_of(prompts)
    packed = Packed(pack(lengths, [[] for _ in prompts], device, opening), keep=True)
    own = [i for prompt in prompts for i in prompt[opening:]]
    ids = torch.tensor(prompts[0][:opening] + own, device=device)
    hidden = forward(model, ids, packed.layout.positions, packed)
    assert packed.kept is not None
    cache = GroupCache.of(packed.kept, lengths, rows, width, opening)
    last = torch.tensor([s.middle - 1 for s in packed.layout.segments], device=device)
    return cache, hidden[last][cache.prompt_of]


def forward(model: nn.Module, ids: Tensor, positions: Tensor, layout: Any) -> Tensor:
    """Final hidden states [N, H] of N tokens seen by the attention that `layout` describes.

    The mask is a placeholder of the shape that the library passes on untouched: no N x N mask is made.
    """
    placeholder = torch.zeros(1, 1, 1, 1, device=ids.device)
    out = body_of(model)(
        input_ids=ids[None], attention_mask=placeholder, position_ids=positions[None], use_cache=False, layout=layout
    )
    return widened(out.last_hidden_state)[0]
