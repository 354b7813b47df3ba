"""The Triton kernels. Imported only where Triton is (see `trial.usable`); TRITON_INTERPRET=1 runs them on a CPU.

Sums are in float32; half-precision matrix products accumulate in float32.
"""

# pyright: reportMissingImports=false

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
def gate_rows(a, b, out, a_row, b_row, width, BLOCK: tl.constexpr):
    """`gate` of rows that do not follow one another in memory. Program (row, tile)."""
    n = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(a + n * a_row + at, mask=at < width).to(tl.float32)
    y = tl.load(b + n * b_row + at, mask=at < width).to(tl.float32)
    tl.store(out + n * width + at, x / (1.0 + tl.exp(-x)) * y, mask=at < width)


@triton.jit
def gate_grad(g, a, b, out, da, db, total, BLOCK: tl.constexpr):
    """`gate` again, and its gradients from g: silu'(a) = s + a s (1 - s) with s = sigmoid(a)."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(a + at, mask=at < total).to(tl.float32), tl.load(b + at, mask=at < total).to(tl.float32)
    s, back = 1.0 / (1.0 + tl.exp(-x)), tl.load(g + at, mask=at < total).to(tl.float32)
    tl.store(out + at, x * s * y, mask=at < total)
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


@triton.jit
def pick(z, peak, mass, uniform, token, log_prob, z_row, count, SIZE: tl.constexpr, LANES: tl.constexpr):
    """The token of row n at which the running sum of exp(z - top) exceeds `uniform` of the whole, and its log-prob.

    Over the spans that `spans` made first (LANES is at least their number), then inside the one that was found.
    """
    n = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, LANES)
    there = s < count
    top_s = tl.load(peak + n * count + s, mask=there, other=float("-inf"))
    top = tl.max(top_s, 0)
    share = tl.where(top_s == float("-inf"), 0.0, tl.exp(top_s - top))
    edges = tl.cumsum(tl.load(mass + n * count + s, mask=there, other=0.0) * share, 0)
    total = tl.max(edges, 0)
    aim = _under(tl.load(uniform + n) * total, total)
    span = tl.minimum(tl.sum((there & (edges <= aim)).to(tl.int32), 0), count - 1)
    before = tl.sum(tl.where(s == span - 1, edges, 0.0), 0)
    i = tl.arange(0, SIZE)
    x = tl.load(z + n * z_row + span * SIZE + i)
    inside = tl.cumsum(tl.exp(x - top), 0)
    aim = _under(aim - before, tl.max(inside, 0))
    within = tl.minimum(tl.sum((inside <= aim).to(tl.int32), 0), SIZE - 1)
    tl.store(token + n, (span * SIZE + within).to(tl.int64))
    tl.store(log_prob + n, tl.sum(tl.where(i == within, x, 0.0), 0) - top - tl.log(total))


@triton.jit
def _under(aim, total):
    """`aim`, where rounding took it up to the total, the number just below it."""
    below = (total.to(tl.int32, bitcast=True) - 1).to(tl.float32, bitcast=True)
    return tl.minimum(aim, tl.where(total > 0, below, 0.0))
