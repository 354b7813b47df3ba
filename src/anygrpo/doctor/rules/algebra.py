"""Certain statements: algebra and probability bounds. No tuning, no exception."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Run
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rules.progress import loss_kl_slope
from anygrpo.doctor.rules.rule import Result, finding, rule
from anygrpo.doctor.series import Series, paired

CLAMPS = (5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0)
"""Log-ratio clamps seen in code."""


def bound(group: int) -> float:
    """Largest possible |z-score| in a group of G with the unbiased std: (G - 1) / sqrt(G)."""
    return (group - 1) / math.sqrt(group)


def group_from_bound(largest: float, tolerance: float = 2e-3) -> int | None:
    """The G whose bound a largest advantage sits on, or None."""
    for group in range(2, 257):
        if abs(largest - bound(group)) <= tolerance * bound(group):
            return group
    return None


def largest_advantage(run: Run) -> Series | None:
    """max |advantage| per row, from whatever was logged."""
    if found := run.get("advantage/abs_max"):
        return found
    high, low = run.get("advantage/max"), run.get("advantage/min")
    if not high:
        return None
    floor = low.at() if low else {}
    values = tuple(max(x, -floor.get(r, -x)) for r, x in zip(high.rows, high.values))
    return Series("advantage/abs_max", high.key, high.rows, values)


def compared_in_a_group(run: Run, rows: Series) -> dict[int, int]:
    """G by row: as logged (stored candidates and filters make it differ from the setting), else the setting's."""
    logged, setting = run.get("groups/size"), run.settings.get("group_size")
    if logged:
        return {r: int(x) for r, x in zip(logged.rows, logged.values) if x > 1}
    return dict.fromkeys(rows.rows, setting) if isinstance(setting, int) and setting > 1 else {}


@rule("group_size_bound", "certain", needs=("advantage/max|advantage/abs_max",))
def group_size_bound(run: Run) -> Result:
    largest = largest_advantage(run)
    assert largest
    top = largest.high
    sizes = compared_in_a_group(run, largest)
    sized = [(x, sizes[r], r) for r, x in zip(largest.rows, largest.values) if r in sizes]
    above = [found for found in sized if found[0] > bound(found[1]) * 1.001]
    if above and run.settings.get("scale_rewards", True):
        worst, group, _ = max(above)
        rows = [r for _, _, r in above]
        return finding("group_size_bound", "warning", rows, variant="above", top=worst, limit=bound(group), group=group)
    inferred = group_from_bound(top)
    on_it = [r for r, x in zip(largest.rows, largest.values) if inferred and abs(x - top) <= 2e-3 * top]
    if inferred is None or len(on_it) < max(2, len(largest) // 20):
        return None
    return finding("group_size_bound", "info", on_it, top=top, group=inferred, count=len(on_it))


@rule(
    "group_of_one",
    "certain",
    needs=("advantage/max|advantage/mean", "reward/mean"),
    explains=("no_learning", "lr_too_small", "advantage_compressed", "starved_groups", "late_collapse", "grad_spikes"),
)
def group_of_one(run: Run) -> Result:
    """Every statistic of the advantages equals that of the scores: nothing was subtracted.

    Extremes are compared where they were logged: means may differ, since one is per token and the other per sample.
    """
    checked = 0
    for ours, theirs in (("advantage/max", "reward/max"), ("advantage/min", "reward/min")):
        a, b = run.get(ours), run.get(theirs)
        if a and b:
            checked += 1
            if not same(a, b):
                return None
    a, b = run.get("advantage/mean"), run.get("reward/mean")
    assert b
    if not checked and not (a and same(a, b)):
        return None
    rows = b.rows
    if len(rows) < 3 or b.constant:
        return None
    return finding(
        "group_of_one",
        "serious",
        rows,
        changes=(Change("group_size", 8),),
        count=len(rows),
        reward=b.mean,
        advantage=a.mean if a else b.mean,
    )


def same(a: Series, b: Series) -> bool:
    """Equal in every common row, to rounding and an epsilon in a denominator."""
    pairs = paired(a, b)
    size = max((abs(x) for _, x, _ in pairs), default=0.0)
    return len(pairs) >= 3 and size > 1e-6 and all(abs(x - y) <= 2e-3 * max(abs(y), 0.05 * size) for _, x, y in pairs)


@rule("rank_std", "certain", needs=("advantage/std",))
def rank_std(run: Run) -> Result:
    spread = run.get("advantage/std")
    normaliser = str(run.settings.get("normaliser", ""))
    if not spread or "rank" not in normaliser or spread.high >= 0.577 * 0.98:
        return None
    return finding("rank_std", "serious", spread.rows, highest=spread.high, least=0.577)


@rule("zscore_std", "certain", needs=("advantage/std",))
def zscore_std(run: Run) -> Result:
    spread = run.get("advantage/std")
    normaliser = str(run.settings.get("normaliser", ""))
    if not spread or normaliser not in ("zscore", "z-score", "group", "std", "group_std") or spread.high >= 0.1:
        return None
    floor = run.settings.get("std_floor")
    if isinstance(floor, int | float) and floor > 0:
        implied = spread.median * float(floor)
        return finding(
            "zscore_std", "warning", spread.rows, variant="floor", spread=spread.median, floor=floor, reward=implied
        )
    share = spread.median**2
    return finding("zscore_std", "warning", spread.rows, spread=spread.median, share=share)


@rule("beta_from_loss", "certain", needs=("loss/total", "kl/reference"))
def beta_from_loss(run: Run) -> Result:
    beta = loss_kl_slope(run)
    if beta is None:
        return None
    loss = run.get("loss/total")
    assert loss
    return finding("beta_from_loss", "info", loss.rows, beta=float(f"{beta:.3g}"), count=len(loss))


@rule("on_policy", "certain", needs=("clip/fraction|clip/low|kl/behaviour|ratio/mean",))
def on_policy(run: Run) -> Result:
    """Certain with two witnesses (clip 0 and ratio 1 or KL(new, old) 0); with the clip alone it is only likely."""
    clip = run.get("clip/fraction") or run.get("clip/high") or run.get("clip/low")
    ratio, moved = run.get("ratio/mean"), run.get("kl/behaviour")
    if clip and clip.high > 0:
        return None
    if ratio and any(abs(x - 1) > 1e-6 for x in ratio.values):
        return None
    if moved and any(abs(x) > 1e-9 for x in moved.values):
        return None
    witness = clip or ratio or moved
    assert witness
    if len(witness) < 3:
        return None
    sure = bool(clip) and bool(ratio or moved)
    variant = "" if ratio or moved else "clip"
    certainty = "certain" if sure else "likely"
    return finding("on_policy", "info", witness.rows[:3], variant=variant, certainty=certainty, count=len(witness))


@rule("kl_off", "certain", needs=("kl/reference",))
def kl_off(run: Run) -> Result:
    kl = run.get("kl/reference")
    if not kl or len(kl) < 3 or any(x != 0 for x in kl.values):
        return None
    return finding("kl_off", "info", kl.rows[:3], count=len(kl))


@rule("mean_advantage", "certain", needs=("advantage/mean",))
def mean_advantage(run: Run) -> Result:
    """Said to reassure: people read it as a symptom. A fault only if nothing else varies either."""
    centre = run.get("advantage/mean")
    assert centre
    if any(abs(x) > 1e-3 for x in centre.values) or len(centre) < 3:
        return None
    for name in ("advantage/std", "reward/std_within", "grad_norm/total"):
        other = run.get(name)
        if other and other.high <= 1e-9:
            return finding(
                "mean_advantage", "warning", centre.rows[:3], variant="dead", name=other.key, count=len(centre)
            )
    return finding("mean_advantage", "info", centre.rows[:3], count=len(centre))


@rule(
    "markov_bound",
    "certain",
    needs=("ratio/mean|ratio/max|log_ratio/abs_max|log_ratio/mean",),
    explains=(
        "log_ratio_explosion",
        "clip_saturated",
        "no_learning",
        "kl_blowup",
        "lr_too_small",
        "pg_loss_growing",
        "lr_too_large",
    ),
)
def markov_bound(run: Run) -> Result:
    for name, limit, logs in (
        ("ratio/mean", 1e6, False),
        ("ratio/max", math.exp(40), False),
        ("log_ratio/mean", 40, True),
    ):
        series = run.get(name)
        if not series:
            continue
        rows = [r for r, x in zip(series.rows, series.values) if x > limit]
        if rows:
            exponent = series.high if logs else math.log(series.high)
            return finding(
                "markov_bound", "serious", rows, name=series.key, top=series.high, exponent=exponent, count=len(rows)
            )
    wide, largest = run.get("log_ratio/abs_max"), run.get("ratio/max")
    if largest and (never := [r for r, x in zip(largest.rows, largest.values) if x < math.exp(-40)]):
        # The first pass over a rollout scores it before any update: there every ratio is 1, whatever comes after.
        sure = "certain" if run.framework == "anygrpo" else "likely"
        return finding(
            "markov_bound",
            "serious",
            never,
            certainty=sure,
            variant="downward",
            name=largest.key,
            top=largest.high,
            count=len(never),
        )
    if wide and wide.high > 40:
        upward = largest.at() if largest else {}  # a row whose largest ratio is bounded was far off downwards: drift
        rows = [r for r, x in zip(wide.rows, wide.values) if x > 40 and upward.get(r, math.inf) > math.exp(40)]
        if not rows:
            return None
        return finding(
            "markov_bound",
            "serious",
            rows,
            certainty="ask",
            variant="unsigned",
            name=wide.key,
            top=wide.high,
            exponent=wide.high,
            count=len(rows),
        )
    return None


@rule(
    "saturated_clamp",
    "certain",
    needs=("ratio/mean|ratio/max|log_ratio/abs_max",),
    explains=("zero_gradient", "no_learning", "log_ratio_explosion", "lr_too_small", "clip_saturated"),
)
def saturated_clamp(run: Run) -> Result:
    for name in ("ratio/mean", "ratio/max", "log_ratio/abs_max"):
        series = run.get(name)
        if not series:
            continue
        for clamp in CLAMPS:
            edge = clamp if name.startswith("log") else math.exp(clamp)
            rows = [r for r, x in zip(series.rows, series.values) if abs(x - edge) <= 1e-6 * edge]
            if len(rows) >= 2 or (rows and len(series) == 1):
                return finding(
                    "saturated_clamp",
                    "serious",
                    rows,
                    name=series.key,
                    clamp=clamp,
                    edge=edge,
                    count=len(rows),
                    of=len(series),
                )
    return None


@rule("z2", "certain", needs=("z2",), explains=("markov_bound", "log_ratio_explosion"))
def z2(run: Run) -> Result:
    series = run.get("z2")
    assert series
    dims = run.settings.get("z2_dims")
    n = float(dims) if isinstance(dims, int | float) and dims > 0 else 1e4
    width = 6 * math.sqrt(2 / n)
    rows = [r for r, x in zip(series.rows, series.values) if abs(x - 1) > width]
    if not rows:
        return None
    worst = max(series.values, key=lambda x: abs(x - 1))
    sure = isinstance(dims, int | float)
    return finding(
        "z2", "serious", rows, certainty="certain" if sure else "ask", worst=worst, width=width, count=len(rows)
    )
