"""The Triton kernels. Imported only where Triton is (see `trial.usable`); TRITON_INTERPRET=1 runs them on a CPU.

Sums are in float32; half-precision matrix products accumulate in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl


def power_of_two(n: int, least: int = 1) -> int:
    """The smallest power of two that is not below n or `least`: sizes of tiles."""
    return max(triton.next_power_of_2(n), least)


# --- Rotary position embedding ---------------------------------------------------------------------------------------


@triton.jit
def _rotate_heads(
    x,
    y,
    cos,
    sin,
    x_head,
    x_token,
    heads,
    n,
    HALF: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    BACK: tl.constexpr,
):
    """One token's heads: y1 = x1 c1 - x2 s1, y2 = x2 c2 + x1 s2; BACK: the transposed map, for gradients."""
    h, d = tl.arange(0, LANES)[:, None], tl.arange(0, WIDTH)[None, :]
    inside = (h < heads) & (d < HALF)
    at = x + h * x_head + n * x_token + d
    x1 = tl.load(at, mask=inside).to(tl.float32)
    x2 = tl.load(at + HALF, mask=inside).to(tl.float32)
    table = n * 2 * HALF + d
    c1 = tl.load(cos + table, mask=d < HALF).to(tl.float32)
    c2 = tl.load(cos + table + HALF, mask=d < HALF).to(tl.float32)
    s1 = tl.load(sin + table, mask=d < HALF).to(tl.float32)
    s2 = tl.load(sin + table + HALF, mask=d < HALF).to(tl.float32)
    if BACK:
        y1, y2 = x1 * c1 + x2 * s2, x2 * c2 - x1 * s1
    else:
        y1, y2 = x1 * c1 - x2 * s1, x2 * c2 + x1 * s2
    to = y + n * heads * 2 * HALF + h * 2 * HALF + d
    tl.store(to, y1, mask=inside)
    tl.store(to + HALF, y2, mask=inside)


@triton.jit
def rotate(
    q,
    k,
    q_out,
    k_out,
    cos,
    sin,
    q_head,
    q_token,
    k_head,
    k_token,
    heads,
    key_heads,
    HALF: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    BACK: tl.constexpr,
):
    """Program (token, 0) turns the queries, (token, 1) the keys."""
    n = tl.program_id(0).to(tl.int64)
    if tl.program_id(1) == 0:
        _rotate_heads(q, q_out, cos, sin, q_head, q_token, heads, n, HALF, LANES, WIDTH, BACK)
    else:
        _rotate_heads(k, k_out, cos, sin, k_head, k_token, key_heads, n, HALF, LANES, WIDTH, BACK)


# --- Attention of a decode step --------------------------------------------------------------------------------------


@triton.jit
def _online(scores, values, top, total, out):
    """One tile more of an online softmax: running maximum, sum and weighted values."""
    new = tl.maximum(top, tl.max(scores, 1))
    # A row that has seen no key yet has maximum -inf; its weights must be 0 and not exp(-inf + inf).
    safe = tl.where(new == float("-inf"), 0.0, new)
    p = tl.exp(scores - safe[:, None])
    shrink = tl.exp(top - safe)
    total = total * shrink + tl.sum(p, 1)
    out = tl.dot(p.to(values.dtype), values, out * shrink[:, None])
    return new, total, out


@triton.jit
def prefix(
    q,
    k,
    v,
    part,
    part_lse,
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
):
    """All rows of prompt p with one split of its keys, for one key head and the SHARE query heads that read it.

    Program (p, key head, query block * SPLITS + split). Writes part [R, HEADS, SPLITS, D], part_lse [R, HEADS, SPLITS].
    """
    p, key_head, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    split, block = z % SPLITS, z // SPLITS
    rows = tl.load(count + p)
    if block * QUERIES < rows * SHARE:
        i = block * QUERIES + tl.arange(0, QUERIES)
        row, head = tl.load(first + p) + i // SHARE, key_head * SHARE + i % SHARE
        alive, d = i < rows * SHARE, tl.arange(0, WIDTH)
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
            scores = tl.dot(queries, tl.trans(keys)) * scale
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
    scale,
    q_row,
    q_head,
    new_row,
    new_head,
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
    at_place = tl.load(place).to(tl.int32)
    lane, d = tl.arange(0, LANES), tl.arange(0, WIDTH)
    head = key_head * SHARE + lane
    mine = (lane < SHARE)[:, None] & (d < D)[None, :]
    queries = tl.load(q + row * q_row + head[:, None] * q_head + d[None, :], mask=mine, other=0.0)
    new = row * new_row + key_head * new_head + d
    key_now, value_now = tl.load(k_new + new, mask=d < D, other=0.0), tl.load(v_new + new, mask=d < D, other=0.0)
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
        scores = tl.dot(queries, tl.trans(keys)) * scale
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


# --- Log-probs from logits -------------------------------------------------------------------------------------------


@triton.jit
def normalise(z, targets, log_prob, lse, entropy, factor, z_row, V, BLOCK: tl.constexpr):
    """Of one row of logits, times `factor`: log-prob of the target, log-normaliser, entropy."""
    n = tl.program_id(0).to(tl.int64)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    mean = tl.zeros([BLOCK], tl.float32)  # sum of exp(x - top) x
    for start in range(0, V, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(z + n * z_row + at, mask=at < V, other=float("-inf")).to(tl.float32) * factor
        new = tl.maximum(top, x)
        safe = tl.where(new == float("-inf"), 0.0, new)
        p, shrink = tl.exp(x - safe), tl.exp(top - safe)
        total = total * shrink + p
        mean = mean * shrink + p * tl.where(p > 0, x, 0.0)
        top = new
    peak = tl.max(top, 0)
    weight = tl.exp(top - peak)
    norm = tl.sum(total * weight, 0)
    lse_n = peak + tl.log(norm)
    target = tl.load(z + n * z_row + tl.load(targets + n)).to(tl.float32) * factor
    tl.store(log_prob + n, target - lse_n)
    tl.store(lse + n, lse_n)
    tl.store(entropy + n, lse_n - tl.sum(mean * weight, 0) / norm)


@triton.jit
def grad_logits(
    z, targets, lse, entropy, g, a, out, factor, chain, z_row, V, ENTROPY: tl.constexpr, BLOCK: tl.constexpr
):
    """d/dz of g log p[target] + a entropy, with p = softmax(factor z): chain (g (onehot - p) - a p (log p + H))."""
    n = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(z + n * z_row + at, mask=at < V, other=float("-inf")).to(tl.float32) * factor
    log_p = x - tl.load(lse + n)
    p, g_n = tl.exp(log_p), tl.load(g + n)
    dz = tl.where(at == tl.load(targets + n), g_n, 0.0) - g_n * p
    if ENTROPY:
        dz -= tl.load(a + n) * p * (tl.where(p > 0, log_p, 0.0) + tl.load(entropy + n))
    tl.store(out + n * V + at, chain * dz, mask=at < V)


# --- The gate of a feed-forward block ---------------------------------------------------------------------------------


@triton.jit
def gate(a, b, out, total, BLOCK: tl.constexpr):
    """out = silu(a) b."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(a + at, mask=at < total).to(tl.float32), tl.load(b + at, mask=at < total).to(tl.float32)
    tl.store(out + at, x / (1.0 + tl.exp(-x)) * y, mask=at < total)


@triton.jit
def gate_grad(g, a, b, da, db, total, BLOCK: tl.constexpr):
    """The gradients of `gate` from g: silu'(a) = s + a s (1 - s) with s = sigmoid(a)."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(a + at, mask=at < total).to(tl.float32), tl.load(b + at, mask=at < total).to(tl.float32)
    s, back = 1.0 / (1.0 + tl.exp(-x)), tl.load(g + at, mask=at < total).to(tl.float32)
    tl.store(da + at, back * y * s * (1.0 + x * (1.0 - s)), mask=at < total)
    tl.store(db + at, back * x * s, mask=at < total)


# --- Drawing ----------------------------------------------------------------------------------------------------------


@triton.jit
def spans(z, peak, mass, z_row, count, SIZE: tl.constexpr, TILE: tl.constexpr):
    """Of each span of SIZE logits: the largest, and the sum of exp(logit - largest). Program (row, tile of spans)."""
    n = tl.program_id(0).to(tl.int64)
    span = tl.program_id(1) * TILE + tl.arange(0, TILE)
    at = span[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    x = tl.load(z + n * z_row + at, mask=(span < count)[:, None], other=float("-inf")).to(tl.float32)
    top = tl.max(x, 1)
    safe = tl.where(top == float("-inf"), 0.0, top)
    tl.store(peak + n * count + span, top, mask=span < count)
    tl.store(mass + n * count + span, tl.sum(tl.exp(x - safe[:, None]), 1), mask=span < count)
