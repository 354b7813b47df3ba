"""Which columns of a log add up to which: exact relations, found by solving over rows.

A relation is believed only if it holds in every row to the printed digits, in far more rows than it has weights, and
if the total varies by much more than those digits: then chance is no explanation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anygrpo.doctor.series import correlation, mean, std

Vector = list[float]
MOST_PARTS = 6
SPARE_ROWS = 6
"""Rows needed beyond one a weight."""
SAMPLE = 240
"""Rows that a relation is solved on; it is then checked on all."""


@dataclass(frozen=True)
class Sum:
    """total = sum of weight x part, in `rows` rows, to `error` at most."""

    total: str
    weights: dict[str, float]
    rows: int
    error: float

    def text(self) -> str:
        signs = {k: "-" if w < 0 else "+" for k, w in self.weights.items()}
        sizes = {k: "" if abs(abs(w) - 1) <= 1e-3 else f"{abs(w):.4g} " for k, w in self.weights.items()}
        terms = [f"{signs[k]} {sizes[k]}{k}" for k in self.weights]
        return f"{self.total} = {' '.join(terms).removeprefix('+ ')} in all {self.rows} rows"


def resolution(values: Sequence[float]) -> float:
    """Half a unit of the last printed digit, or float32's step at the largest value."""
    top = max((abs(x) for x in values), default=0.0)
    for digits in range(9):
        if all(abs(x - round(x, digits)) <= 1e-9 * max(1.0, abs(x)) for x in values):
            return max(0.5 * 10.0**-digits, 1e-7 * top) if digits else 1e-7 * top
    return 2e-7 * top


def solve_sum(total: str, columns: Mapping[str, Sequence[float]], prefer: str = "") -> Sum | None:
    """The fewest of `columns` whose weighted sum is `columns[total]` in every row, or None.

    Args:
        columns: name -> values, all of one length, finite.
        prefer: among columns that do the same, those whose names share most with this one.
    """
    y = list(columns[total])
    n = len(y)
    digits = {k: resolution(v) for k, v in columns.items()}
    if n < SPARE_ROWS + 2 or std(y) <= 20 * digits[total]:
        return None
    pool = [k for k, v in columns.items() if k != total and max(v) - min(v) > 4 * digits[k]]
    picked = [round(i * (n - 1) / (min(n, SAMPLE) - 1)) for i in range(min(n, SAMPLE))]
    small = {k: [columns[k][i] for i in picked] for k in (*pool, total)}
    chosen: list[str] = []
    rest = small[total]
    while len(chosen) < MOST_PARTS and n >= len(chosen) + 1 + SPARE_ROWS:
        best = best_match(rest, {k: small[k] for k in pool if k not in chosen}, prefer or total)
        if best is None:
            return None
        chosen.append(best)
        weights = least_squares([small[k] for k in chosen], small[total])
        if weights is None:
            return None
        rest = [t - math.fsum(w * x for w, x in zip(weights, row)) for t, row in zip(
            small[total], zip(*(small[k] for k in chosen)))]  # fmt: skip
        if max(map(abs, rest)) <= allowance(digits, total, chosen, weights):
            return checked(total, columns, digits, chosen)
    return None


def best_match(rest: Vector, pool: Mapping[str, Vector], like: str) -> str | None:
    """The column that explains most of what is left; names alike to `like` win ties."""
    if std(rest) == 0 and mean(rest) == 0:
        return None
    scores = {k: abs(correlation(rest, v)) for k, v in pool.items()}
    top = max(scores.values(), default=0.0)
    if top < 0.02:
        return None
    return max((k for k, s in scores.items() if s >= top - 1e-9), key=lambda k: (shared(k, like), k))


def shared(a: str, b: str) -> int:
    """Words that two names have in common."""
    cut = [set(name.replace("/", "_").split("_")) for name in (a, b)]
    return len(cut[0] & cut[1])


def checked(
    total: str, columns: Mapping[str, Sequence[float]], digits: dict[str, float], names: list[str]
) -> Sum | None:
    """The relation solved on all rows, without parts of weight 0; None unless it holds in each."""
    while names:
        weights = least_squares([list(columns[k]) for k in names], list(columns[total]))
        if weights is None:
            return None
        idle = [k for k, w in zip(names, weights) if abs(w) * std(columns[k]) <= 2 * digits[total]]
        if not idle:
            break
        names = [k for k in names if k not in idle]
    else:
        return None
    error = max(
        abs(t - math.fsum(w * x for w, x in zip(weights, row)))
        for t, row in zip(columns[total], zip(*(columns[k] for k in names)))
    )
    if error > allowance(digits, total, names, weights):
        return None
    return Sum(total, {k: tidy(w) for k, w in zip(names, weights)}, len(columns[total]), error)


def allowance(digits: dict[str, float], total: str, names: list[str], weights: Vector) -> float:
    """What rounding of the printed numbers can add up to."""
    return 1.05 * (digits[total] + math.fsum(abs(w) * digits[k] for k, w in zip(names, weights))) + 1e-12


def tidy(w: float) -> float:
    """.5000003 is .5."""
    short = float(f"{w:.3g}")
    return short if abs(short - w) <= 2e-4 * abs(w) else float(f"{w:.6g}")


def least_squares(columns: Sequence[Vector], y: Vector) -> Vector | None:
    """Weights without a constant term, by the normal equations of scaled columns; None where they are dependent."""
    k = len(columns)
    scale = [math.sqrt(math.fsum(x * x for x in c)) or 1.0 for c in columns]
    a = [[math.fsum(p * q for p, q in zip(columns[i], columns[j])) / (scale[i] * scale[j]) for j in range(k)]
         for i in range(k)]  # fmt: skip
    b = [math.fsum(p * q for p, q in zip(columns[i], y)) / scale[i] for i in range(k)]
    for i in range(k):
        pivot = max(range(i, k), key=lambda r: abs(a[r][i]))
        if abs(a[pivot][i]) < 1e-10:
            return None
        a[i], a[pivot], b[i], b[pivot] = a[pivot], a[i], b[pivot], b[i]
        for r in range(i + 1, k):
            f = a[r][i] / a[i][i]
            for c in range(i, k):
                a[r][c] -= f * a[i][c]
            b[r] -= f * b[i]
    out = [0.0] * k
    for i in reversed(range(k)):
        out[i] = (b[i] - math.fsum(a[i][j] * out[j] for j in range(i + 1, k))) / a[i][i]
    return [w / s for w, s in zip(out, scale)]
