"""Steps that do not move the policy: no gradient, a rate too small, a KL term that holds it."""

from __future__ import annotations

from anygrpo.doctor.columns import Run
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rules.groups import dead_share
from anygrpo.doctor.rules.progress import held_out_rose, loss_kl_slope, progress
from anygrpo.doctor.rules.rule import Result, finding, rule
from anygrpo.doctor.series import mean, median, paired

COLLAPSES = ("no_learning", "late_collapse", "validation_drop", "entropy_explosion", "entropy_collapse")


@rule(
    "zero_gradient", "likely", needs=("grad_norm/total|update/relative_norm",), explains=("lr_too_small", "no_learning")
)
def zero_gradient(run: Run) -> Result:
    """Rewards differ and the gradient is exactly 0, or the weights do not move. A warm-up row with rate 0 is none."""
    moved, rate = run.get("update/relative_norm"), run.get("lr")
    if moved and len(moved) >= 3:
        off = rate.at() if rate else {}
        still = [r for r, x in zip(moved.rows, moved.values) if x <= 0 and off.get(r, 1.0) > 0]
        if len(still) > 0.9 * len(moved):
            return finding("zero_gradient", "serious", still, variant="still", count=len(still), of=len(moved))
    grad, within = (
        run.get("grad_norm/total"),
        run.get("reward/std_within") or run.get("reward/std") or run.get("advantage/std"),
    )
    if not grad or not within:
        return None
    alive = [(r, g) for r, s, g in paired(within, grad) if s > 1e-6]
    zero = [r for r, g in alive if abs(g) <= 1e-12]
    if len(alive) < 3 or len(zero) < 0.9 * len(alive):
        return None
    return finding(
        "zero_gradient",
        "serious",
        zero,
        count=len(zero),
        of=len(alive),
        metrics=("grad_norm/total", "reward/std_within"),
    )


@rule(
    "lr_too_small",
    "likely",
    needs=("reward/mean", "kl/reference"),
    trend=True,
    explains=("no_learning",),
)
def lr_too_small(run: Run) -> Result:
    """No gain, KL to the start below .001 after 100 or more updates, and the gradient is not what is missing."""
    p, kl, grad = progress(run), run.comparable("kl/reference"), run.get("grad_norm/total")
    if not p or not p.flat or not kl or run.updates < 100 or held_out_rose(run):
        return None
    moved = mean(kl.tail(0.5))
    if abs(moved) >= 1e-3 or all(x == 0 for x in kl.values) or (grad and grad.median <= 1e-9):
        return None
    dead = dead_share(run)
    if dead and mean(dead.tail(0.5)) > 0.7:
        return None
    rate = run.get("lr")
    return finding(
        "lr_too_small",
        "warning",
        kl.rows[-kl.quarter_size :],
        kl=moved,
        updates=run.updates,
        gain=p.reward.gain,
        mde=p.reward.mde,
        lr=rate.high if rate else "?",
        changes=(Change("learning_rate", factor=5.0),),
        metrics=("kl/reference", "reward/mean"),
    )


@rule("kl_dominates", "likely", explains=("no_learning", "lr_too_small"))
def kl_dominates(run: Run) -> Result:
    ours, theirs = run.get("grad_norm/policy"), run.get("grad_norm/kl")
    cut = (Change("beta", 0.001),)
    if ours and theirs:
        ratios = [(r, k / p) for r, p, k in paired(ours, theirs) if p > 0]
        middle = median(x for _, x in ratios) if ratios else 0.0
        if len(ratios) >= 3 and middle > 1:
            return finding(
                "kl_dominates", "warning", [r for r, x in ratios if x > 1], ratio=middle, count=len(ratios), changes=cut
            )
        if middle < 0.5:  # a policy held by the KL term sees two gradients of like size that cancel
            return None
    p, kl, beta = progress(run), run.comparable("kl/reference"), beta_of(run)
    spread = run.get("advantage/std")
    if not p or not p.flat or not kl or beta is None or beta < 0.1 or len(kl) < 8 or held_out_rose(run):
        return None
    if abs(kl.gain) > kl.mde or (spread and spread.last < 0.3):
        return None
    return finding(
        "kl_dominates",
        "warning",
        kl.rows,
        variant="held",
        beta=beta,
        kl=kl.last,
        gain=p.reward.gain,
        mde=p.reward.mde,
        changes=cut,
    )


def beta_of(run: Run) -> float | None:
    logged, setting = run.get("beta"), run.settings.get("beta")
    if logged:
        return logged.median
    return float(setting) if isinstance(setting, int | float) else loss_kl_slope(run)
