"""Attention of a decode step in two launches (on a CPU one pass), where matrix products, masks, a softmax and copies
take twenty.

The first reads each prompt once for all of its rows, in some splits of its keys; the second reads each row's own keys,
writes the new one, and joins everything by the log-normalisers.
"""

# pyright: reportIndexIssue=false

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anygrpo.language.kernels.native import calls, library
from anygrpo.language.kernels.trial import HALF, usable

SPLIT = 128
"""Keys of a prompt that one program reads at least; more programs where the prompt is longer."""

MOST_SPLITS = 8
QUERIES = 64


@dataclass(frozen=True)
class Prompts:
    """The prompts of a decode step.

    Attributes:
        k, v: [P, KV, Lp, D], contiguous.
        lengths: [P] int32 of each prompt. first, count: [P] int32: where its rows begin in `order`, and their number.
        most: rows of one prompt at most.
        order: [R] int64: the rows, prompt by prompt; None: they lie so (on a CPU always).
    """

    k: Tensor
    v: Tensor
    lengths: Tensor
    first: Tensor
    count: Tensor
    most: int
    order: Tensor | None


def fits(query: Tensor, key: Tensor, place: int | Tensor) -> bool:
    """Whether the kernels take queries [1, H, R, D] and keys [1, KV, R, D] of this kind, at a place of this kind."""
    if not query.is_cuda:
        return isinstance(place, int) and usable(query) and query.shape[1] <= calls.WIDE * key.shape[1]
    return usable(query) and query.dtype in HALF and query.shape[-1] <= 256


def attend(
    q: Tensor,
    key: Tensor,
    value: Tensor,
    prompts: Prompts,
    own_k: Tensor,
    own_v: Tensor,
    place: int | Tensor,
    scale: float,
) -> Tensor:
    """[1, R, H, D]: softmax attention of each row to its prompt, to its own `place` tokens, and to the new one.

    Args:
        q: [1, H, R, D]. key, value: [1, KV, R, D] of the new tokens; written into `own_k`, `own_v` at `place`.
        own_k, own_v: [R, KV, T, D], contiguous. place: a number, or on a GPU [1] or [R] int64.
    """
    if isinstance(place, int):
        if library.usable(q):
            return calls.attend(q, key, value, prompts, own_k, own_v, place, scale)
        place = torch.full((1,), place, device=q.device)
    from anygrpo.language.kernels.triton import attention_kernels
    from anygrpo.language.kernels.triton import pointwise as kernels

    q, key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, key, value))
    (_, heads, rows, size), key_heads = q.shape, key.shape[1]
    count, share = len(prompts.lengths), heads // key_heads
    splits = min(MOST_SPLITS, -(-prompts.k.shape[2] // SPLIT))
    part = torch.empty(rows, heads, splits, size, dtype=torch.float32, device=q.device)
    part_lse, out = part.new_empty(rows, heads, splits), q.new_empty(1, rows, heads, size)
    shape = {"SHARE": share, "HEADS": heads, "SPLITS": splits, "D": size, "WIDTH": kernels.power_of_two(size, 16)}
    keys = 64 if size <= 128 else 32
    blocks = -(-prompts.most * share // QUERIES)
    attention_kernels.prefix[(count, key_heads, blocks * splits)](
        q, prompts.k, prompts.v, part, part_lse, prompts.first if prompts.order is None else prompts.order,
        prompts.first, prompts.count, prompts.lengths, scale, q.stride(2), q.stride(1), *prompts.k.stride()[:3],
        QUERIES=QUERIES, KEYS=keys, SORTED=prompts.order is None, **shape,
    )  # fmt: skip
    attention_kernels.own[(rows, key_heads)](
        q, key, value, own_k, own_v, part, part_lse, out, place, int(len(place) > 1), scale, q.stride(2), q.stride(1),
        key.stride(2), key.stride(1), value.stride(2), value.stride(1), *own_k.stride()[:2],
        LANES=kernels.power_of_two(share, 16), KEYS=keys, **shape,
    )  # fmt: skip
    return out
