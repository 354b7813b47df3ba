"""Sampler against trainer, stale rollouts, and how random the policy still is."""

from __future__ import annotations

import math
from collections.abc import Callable

from anygrpo.doctor.columns import Run
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rules.groups import dead_share
from anygrpo.doctor.rules.progress import held_out_rose, progress
from anygrpo.doctor.rules.rule import Result, finding, rule
from anygrpo.doctor.series import mean

MISMATCHED = ("log_ratio_explosion", "kl_blowup", "no_learning", "late_collapse", "clip_saturated", "lr_too_large")


LIMITS: dict[str, Callable[[float], bool]] = {
    "mismatch/ratio_mean": lambda x: not 0.5 <= x <= 2,
    "mismatch/ess": lambda x: 0 <= x < 0.3,
    "kl/rollout": lambda x: abs(x) > 0.1,
}
"""Outside what the same policy gives on the same tokens."""


@rule(
    "sampler_mismatch",
    "likely",
    needs=("mismatch/ratio_mean|mismatch/ess|kl/rollout|kl/reference",),
    explains=MISMATCHED,
)
def sampler_mismatch(run: Run) -> Result:
    """Importance ratio outside [.5, 2], ESS below .3, |KL(rollout, train)| above .1, first-row KL in the hundreds."""
    for name, off in LIMITS.items():
        series = run.comparable(name)
        if not series:
            continue
        rows = [r for r, x in zip(series.rows, series.values) if off(x)]
        if len(rows) > 0.2 * len(series) and off(mean(series.tail(0.5))):
            cures = (Change("temperature", 1.0), Change("top_p", 1.0), Change("importance_cap", 2.0))
            return finding(
                "sampler_mismatch",
                "serious",
                rows,
                name=series.key,
                value=series.last,
                count=len(rows),
                of=len(series),
                changes=cures,
            )
    kl = run.comparable("kl/reference")
    if kl and kl.values[0] > 100:
        return finding(
            "sampler_mismatch",
            "serious",
            kl.rows[:1],
            variant="first",
            name=kl.key,
            value=kl.values[0],
            metrics=("kl/reference",),
        )
    return None


@rule(
    "wrong_reference",
    "certain",
    needs=("kl/reference",),
    explains=("kl_blowup", "kl_dominates", "no_learning", "lr_too_small", "lr_too_large"),
)
def wrong_reference(run: Run) -> Result:
    """KL > .05 in the very first row of a log with one row a step, then a band that training does not move.

    With averaged rows, or no step counter, the first row may hold some updates: then only from .5 on, and likely.
    Where the policy is as far from what it just sampled with, it is the scoring that differs, not the reference.
    """
    kl = run.comparable("kl/reference")
    if not kl or len(kl) < 8 or "penalty" in kl.key:
        return None
    at_start = kl.rows[0] in run.steps and run.steps_per_row == 1 and run.steps[kl.rows[0]] <= 1
    near_start = not run.steps or (run.steps.get(kl.rows[0], 99.0) <= 10 and (run.steps_per_row or 99.0) <= 10)
    if not (at_start and kl.values[0] > 0.05) and not (near_start and kl.values[0] > 0.5):
        return None
    band = kl.end / kl.start if kl.start > 0 else math.inf
    if not 1 / 3 <= band <= 3 or min(kl.start, kl.end, kl.median) < kl.values[0] / 4:
        return None
    own = run.comparable("kl/behaviour")
    scoring = at_start and own is not None and own.rows[0] == kl.rows[0] and own.values[0] > kl.values[0] / 3
    return finding(
        "wrong_reference",
        "serious" if at_start else "warning",
        kl.rows[:8],
        certainty="certain" if at_start else "likely",
        variant="scoring" if scoring else "",
        changes=_scoring_faults(run) if scoring else (Change("reference_model"),),
        metrics=("kl/reference", "kl/behaviour") if scoring else ("kl/reference",),
        own=own.values[0] if scoring and own else 0.0,
        first=kl.values[0],
        middle=kl.median,
        low=kl.low,
        high=kl.high,
    )


def _scoring_faults(run: Run) -> tuple[Change, ...]:
    """Settings of ours that make scoring another policy than sampling, where the run has them."""
    faults = {"scoring_dropout": (True, "false"), "behaviour": ("first", "current")}
    return tuple(Change(name, cure) for name, (bad, cure) in faults.items() if run.settings.get(name) == bad)


@rule(
    "stale_rollouts",
    "likely",
    needs=("kl/rollout|mismatch/log_prob|mismatch/ratio_mean", "reward/mean"),
    trend=True,
    explains=("no_learning", "clip_saturated"),
)
def stale_rollouts(run: Run) -> Result:
    """The distance of sampler and trainer grows with the updates while the reward does not move."""
    p = progress(run)
    distance = run.get("mismatch/log_prob") or run.get("kl/rollout")
    if not p or not p.flat or not distance or len(distance) < 12 or held_out_rose(run):
        return None
    if distance.p >= 0.01 or distance.gain <= distance.mde or distance.last < 2 * max(distance.first, 1e-9):
        return None
    return finding(
        "stale_rollouts",
        "warning",
        distance.rows,
        certainty="ask",
        name=distance.key,
        first=distance.first,
        last=distance.last,
        gain=p.reward.gain,
        mde=p.reward.mde,
    )


def clip_high(run: Run, value: float) -> tuple[Change, ...]:
    """The upper clip at `value`; nothing where the log shows that no ratio reaches one, so that none can matter."""
    clipped = run.get("clip/fraction")
    return () if clipped and max(clipped.values) == 0 else (Change("clip_high", value),)


@rule("low_entropy_start", "likely", needs=("entropy",), explains=("entropy_collapse",))
def low_entropy_start(run: Run) -> Result:
    entropy = run.get("entropy")
    assert entropy
    if len(entropy) < 3 or not 0 <= entropy.start < 0.1:
        return None
    p = progress(run)
    severity = "warning" if p and p.flat else "info"
    return finding(
        "low_entropy_start",
        severity,
        entropy.rows[: entropy.edge],
        start=entropy.start,
        changes=(Change("temperature", 1.2),),
        metrics=("entropy",),
    )


@rule(
    "entropy_collapse",
    "likely",
    needs=("entropy", "reward/mean"),
    trend=True,
    explains=("no_learning", "decision_collapse"),
)
def entropy_collapse(run: Run) -> Result:
    """Below a tenth of its start (or .03), no gain since then, and more and more groups without spread."""
    entropy, p = run.get("entropy"), progress(run)
    assert entropy
    if not p or len(entropy) < 16 or entropy.start < 0.1:
        return None
    floor = max(0.1 * entropy.start, 0.03)
    smooth = entropy.smooth()
    down = next((i for i, x in enumerate(smooth) if x < floor), None)
    if down is None or entropy.end >= floor:
        return None
    after = [x for r, x in zip(p.reward.rows, p.reward.values) if r >= entropy.rows[down]]
    half = len(after) // 2
    if half >= 3 and mean(after[half:]) - mean(after[:half]) > p.reward.noise * (2 / half) ** 0.5 * 2:
        return None
    dead = dead_share(run)
    if dead is None or dead.gain <= 0 or (held_out_rose(run) and not p.fell):
        return None
    rows = [r for r, x in zip(entropy.rows, entropy.values) if x < floor]
    changes = (*clip_high(run, 0.28), Change("temperature", 1.0))
    return finding(
        "entropy_collapse",
        "warning",
        rows,
        start=entropy.start,
        end=entropy.end,
        row=entropy.rows[down],
        dead_first=dead.first,
        dead_last=dead.last,
        changes=changes,
        metrics=("entropy", "groups/dead", "reward/mean"),
    )


@rule(
    "entropy_explosion",
    "likely",
    needs=("entropy", "reward/mean"),
    trend=True,
    explains=("late_collapse", "length_explosion"),
)
def entropy_explosion(run: Run) -> Result:
    """Over twice its own minimum and over 1, while the reward came down from its best."""
    entropy, p = run.get("entropy"), progress(run)
    assert entropy
    if not p or len(entropy) < 16:
        return None
    smooth = entropy.smooth()
    least = min(smooth)
    at = smooth.index(least)
    before = mean(p.reward.values[max(0, at - p.reward.edge) : at + 1])
    drop = before - p.reward.last
    width = p.reward.noise * (2 / min(at + 1, p.reward.edge)) ** 0.5
    if smooth[-1] <= 1 or smooth[-1] <= 2 * least or drop <= 2 * width or not (p.reward.gain < 0 or drop > 3 * width):
        return None
    changes = (Change("entropy_coef", 0.0), *clip_high(run, 0.2))
    return finding(
        "entropy_explosion",
        "warning",
        entropy.rows[at:],
        least=least,
        now=smooth[-1],
        before=before,
        after=p.reward.last,
        changes=changes,
        metrics=("entropy", "reward/mean"),
    )


@rule("decision_collapse", "likely", needs=("answers/distinct",))
def decision_collapse(run: Run) -> Result:
    answers, texts = run.get("answers/distinct"), run.get("texts/distinct")
    assert answers
    fallen = answers.last < 0.3 * answers.first or answers.last < 0.15
    if not fallen or (texts is not None and texts.last < 0.5):
        return None
    return finding(
        "decision_collapse",
        "warning",
        answers.rows,
        certainty="likely" if texts else "ask",
        changes=clip_high(run, 0.28),
        answers=answers.last,
        first=answers.first,
        texts=texts.last if texts else "?",
    )
