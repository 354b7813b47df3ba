"""Is there anything to judge: crashes, non-finite numbers, logs that are too short or of another kind of training."""

from __future__ import annotations

from anygrpo.doctor.columns import Run
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rules.progress import LONG_ENOUGH, held_out_rose, progress
from anygrpo.doctor.rules.rule import Result, finding, rule

TREND_RULES = (
    "no_learning",
    "lr_too_small",
    "late_collapse",
    "starved_groups",
    "mastered_groups",
    "kl_blowup",
    "lr_exhausted",
)
EVERYTHING_RL = (*TREND_RULES, "truncation", "zero_gradient", "sup_loss_flat", "grad_spikes", "advantage_compressed")


@rule("crash", "certain", explains=())
def crash(run: Run) -> Result:
    end = run.ending
    if end is None:
        if run.rows == 0:
            return finding("crash", "serious", variant="no_rows")
        return None
    if end.kind == "crash":
        rows = [max(run.steps)] if run.steps else ([run.rows] if run.rows else [])
        return finding("crash", "serious", rows, text=end.text, line=end.line, count=run.rows)
    return finding("crash", "info", variant=end.kind, text=end.text, line=end.line, count=run.rows)


@rule(
    "nonfinite",
    "certain",
    explains=("crash", "no_learning", "lr_too_small", "late_collapse", "zero_gradient"),
)
def nonfinite(run: Run) -> Result:
    """Any NaN or infinity in a training metric; a column that is never finite was never computed and only noted."""
    watched = (
        "loss/total",
        "loss/policy",
        "grad_norm/total",
        "reward/mean",
        "kl/reference",
        "entropy",
        "ratio/mean",
        "advantage/std",
    )
    hit = {name: s for name, s in run.series.items() if s.bad and not name.startswith("eval/")}
    never = [s.key for s in hit.values() if not s.values]
    some = {name: s for name, s in hit.items() if s.values}
    if not some:
        return finding("nonfinite", "info", variant="never", names=", ".join(never)) if never else None
    core = {name: s for name, s in some.items() if name in watched}
    rows = sorted({r for s in (core or some).values() for r in s.bad})
    names = ", ".join(sorted(s.key for s in (core or some).values()))
    still = max(rows) >= max(max(s.rows) for s in some.values())
    severity = "serious" if core and (still or len(rows) > 2) else "warning" if core else "info"
    return finding(
        "nonfinite", severity, rows, names=names, count=len(rows), first=rows[0], changes=(Change("precision"),)
    )


@rule("not_rl_log", "certain", explains=EVERYTHING_RL)
def not_rl_log(run: Run) -> Result:
    if run.rows == 0:
        return None
    if run.preference:
        return finding("not_rl_log", "warning", variant="preference")
    if any(
        run.get(name) for name in ("reward/mean", "advantage/std", "advantage/max", "reward/std_within", "groups/dead")
    ):
        return None
    if run.components or any("reward" in name for name in run.evals):
        return None
    keys = ", ".join(sorted(s.key for s in run.series.values() if len(s))[:6])
    return finding("not_rl_log", "warning", keys=keys)


@rule("too_short", "certain", explains=TREND_RULES)
def too_short(run: Run) -> Result:
    """Fewer than 8 rewards; or nothing moved and so few could not have shown a gain worth wanting.

    Of 20 rows or more the second is a note (the verdict is then "cannot tell"): the run may well be fine.
    """
    if run.rows == 0:
        return None
    reward = run.get("reward/mean")
    if reward is None:
        return None
    n = len(reward)
    if n < LONG_ENOUGH:
        return finding("too_short", "warning", reward.rows, count=n, needed=LONG_ENOUGH, all=run.rows)
    p = progress(run)
    if p and p.unclear and not held_out_rose(run):
        weight = "warning" if n < 20 else "info"
        return finding("too_short", weight, reward.rows, variant="mde", count=n, gain=reward.gain, mde=reward.mde)
    return None
