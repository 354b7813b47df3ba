"""The Triton kernels of a decode step's attention; see `kernels.py`."""

# pyright: reportMissingImports=false

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _online(scores, values, top, total, out):
    """One tile more of an online softmax: running maximum, sum and weighted values."""
    new = tl.maximum(top, tl.max(scores, 1))
    # A row that has seen no key yet has maximum -inf; its weights must be 0 and not exp(-inf + inf).
    safe = tl.where(new == float("-inf"), 0.0, new)
    p = tl.exp(scores - safe[:, None])
    shrink = tl.exp(top - safe)
    total = total * shrink + tl.sum(p, 1)
    out = tl.dot(p.to(values.dtype), values, out * shrink[:, None], input_precision="ieee")
    return new, total, out


@triton.jit
def prefix(
    q,
    k,
    v,
    part,
    part_lse,
    order,
    first,
    count,
    lengths,
    scale,
    q_row,
    q_head,
    k_prompt,
    k_head,
    k_token,
    SHARE: tl.constexpr,
    HEADS: tl.constexpr,
    SPLITS: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    SORTED: tl.constexpr,
):
    """All rows of prompt p with one split of its keys, for one key head and the SHARE query heads that read it.

    Program (p, key head, query block * SPLITS + split). Writes part [R, HEADS, SPLITS, D], part_lse [R, HEADS, SPLITS].
    """
    p, key_head, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    split, block = z % SPLITS, z // SPLITS
    rows = tl.load(count + p)
    if block * QUERIES < rows * SHARE:
        i = block * QUERIES + tl.arange(0, QUERIES)
        alive, d, head = i < rows * SHARE, tl.arange(0, WIDTH), key_head * SHARE + i % SHARE
        row = tl.load(first + p) + i // SHARE
        if not SORTED:
            row = tl.load(order + row, mask=alive, other=0)
        length = tl.load(lengths + p)
        step = tl.cdiv(tl.cdiv(length, KEYS), SPLITS) * KEYS
        begin = split * step
        end = tl.minimum(begin + step, length)
        mine = alive[:, None] & (d < D)[None, :]
        queries = tl.load(q + row[:, None] * q_row + head[:, None] * q_head + d[None, :], mask=mine, other=0.0)
        top = tl.full([QUERIES], float("-inf"), tl.float32)
        total = tl.zeros([QUERIES], tl.float32)
        out = tl.zeros([QUERIES, WIDTH], tl.float32)
        base = p.to(tl.int64) * k_prompt + key_head * k_head
        for start in range(begin, end, KEYS):
            key = start + tl.arange(0, KEYS)
            there = (key < end)[:, None] & (d < D)[None, :]
            at = base + key[:, None] * k_token + d[None, :]
            keys = tl.load(k + at, mask=there, other=0.0)
            values = tl.load(v + at, mask=there, other=0.0)
            scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
            scores = tl.where((key < end)[None, :], scores, float("-inf"))
            top, total, out = _online(scores, values, top, total, out)
        where = (row * HEADS + head) * SPLITS + split
        seen = total > 0
        share = tl.where(seen, 1.0 / tl.where(seen, total, 1.0), 0.0)
        lse = tl.where(seen, top + tl.log(tl.where(seen, total, 1.0)), float("-inf"))
        tl.store(part_lse + where, lse, mask=alive)
        tl.store(part + where.to(tl.int64)[:, None] * D + d[None, :], out * share[:, None], mask=mine)


@triton.jit
def own(
    q,
    k_new,
    v_new,
    k,
    v,
    part,
    part_lse,
    out,
    place,
    place_step,
    scale,
    q_row,
    q_head,
    key_row,
    key_step,
    value_row,
    value_step,
    k_row,
    k_head,
    SHARE: tl.constexpr,
    HEADS: tl.constexpr,
    SPLITS: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,
    KEYS: tl.constexpr,
):
    """One row with its own keys, the new one included, joined with what its prompt gave. Program (row, key head).

    Writes the new key and value at `place` of the row's cache, and out [R, HEADS, D].
    """
    row, key_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at_place = tl.load(place + row * place_step).to(tl.int32)
    lane, d = tl.arange(0, LANES), tl.arange(0, WIDTH)
    head = key_head * SHARE + lane
    mine = (lane < SHARE)[:, None] & (d < D)[None, :]
    queries = tl.load(q + row * q_row + head[:, None] * q_head + d[None, :], mask=mine, other=0.0)
    key_now = tl.load(k_new + row * key_row + key_head * key_step + d, mask=d < D, other=0.0)
    value_now = tl.load(v_new + row * value_row + key_head * value_step + d, mask=d < D, other=0.0)
    base = row * k_row + key_head * k_head
    tl.store(k + base + at_place * D + d, key_now, mask=d < D)
    tl.store(v + base + at_place * D + d, value_now, mask=d < D)
    top = tl.sum(queries.to(tl.float32) * key_now.to(tl.float32)[None, :], 1) * scale
    total = tl.full([LANES], 1.0, tl.float32)
    sums = tl.zeros([LANES, WIDTH], tl.float32) + value_now.to(tl.float32)[None, :]
    for start in range(0, at_place, KEYS):
        key = start + tl.arange(0, KEYS)
        there = (key < at_place)[:, None] & (d < D)[None, :]
        at = base + key[:, None] * D + d[None, :]
        keys = tl.load(k + at, mask=there, other=0.0)
        values = tl.load(v + at, mask=there, other=0.0)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where((key < at_place)[None, :], scores, float("-inf"))
        top, total, sums = _online(scores, values, top, total, sums)
    for split in range(SPLITS):
        where = (row * HEADS + head) * SPLITS + split
        lse = tl.load(part_lse + where, mask=lane < SHARE, other=float("-inf"))
        theirs = tl.load(part + where[:, None] * D + d[None, :], mask=mine, other=0.0)
        new_top = tl.maximum(top, lse)
        shrink, weight = tl.exp(top - new_top), tl.exp(lse - new_top)
        total = total * shrink + weight
        sums = sums * shrink[:, None] + theirs * weight[:, None]
        top = new_top
    tl.store(out + (row * HEADS + head[:, None]) * D + d[None, :], sums / total[:, None], mask=mine)
