"""Steps that are too large or go the wrong way: KL, log-ratios, gradients, clipping."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Run
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rules.progress import blocks, held_out_rose, progress
from anygrpo.doctor.rules.rule import Result, finding, rule
from anygrpo.doctor.rules.steps import COLLAPSES
from anygrpo.doctor.series import mean, median

TIERS = ((20.0, "stop", 1e-7, 2.0), (10.0, "high", 5e-7, 1.0), (5.0, "raised", 1e-6, 0.5))


@rule(
    "kl_blowup",
    "likely",
    needs=("kl/reference", "reward/mean"),
    trend=True,
    explains=(*COLLAPSES, "grad_spikes", "length_explosion", "lr_too_large"),
)
def kl_blowup(run: Run) -> Result:
    """The last KL is over 8 times its own early median and over .5, and the reward gained less than it fluctuates."""
    p, kl = progress(run), run.comparable("kl/reference")
    if not p or not kl or len(kl) < 16:
        return None
    early, late = median(kl.values[: max(3, len(kl) // 10)]), median(kl.values[-kl.edge :])
    if (
        late <= 0.5
        or late <= 8 * max(early, 1e-12)
        or p.reward.gain > max(p.reward.mde, p.reward.noise)
        or held_out_rose(run)
    ):
        return None
    rows = [r for r, x in zip(kl.rows, kl.values) if x > 8 * max(early, 1e-12) and x > 0.5]
    return finding(
        "kl_blowup",
        "serious",
        rows,
        early=early,
        late=late,
        gain=p.reward.gain,
        mde=p.reward.mde,
        noise=p.reward.noise,
        changes=(Change("learning_rate", factor=0.3), Change("beta", factor=5.0)),
        metrics=("kl/reference", "reward/mean"),
    )


@rule(
    "log_ratio_explosion",
    "likely",
    needs=("log_ratio/abs_max|ratio/max",),
    explains=("clip_saturated", "grad_spikes", *COLLAPSES),
)
def log_ratio_explosion(run: Run) -> Result:
    wide, top = run.get("log_ratio/abs_max"), run.get("ratio/max")
    source = wide or top
    assert source
    sizes = source.values if wide else tuple(math.log(max(x, 1e-300)) for x in source.values)
    worst = max(sizes)
    for limit, tier, rate, beta in TIERS:
        rows = [r for r, x in zip(source.rows, sizes) if x > limit]
        if rows:
            changes = [Change("learning_rate", rate), Change("beta", beta)] + (
                [Change("clip", 0.1)] if tier == "high" else []
            )
            return finding(
                "log_ratio_explosion",
                "warning" if tier == "raised" else "serious",
                rows,
                variant=tier,
                worst=worst,
                count=len(rows),
                of=len(sizes),
                changes=tuple(changes),
                metrics=("log_ratio/abs_max", "ratio/max"),
            )
    return None


@rule("lr_too_large", "likely", needs=("kl/reference", "reward/mean"), trend=True, explains=COLLAPSES)
def lr_too_large(run: Run) -> Result:
    """In the first third KL at twice the rows is over 4 times as large and over .1, and the reward has fallen."""
    p, kl = progress(run), run.comparable("kl/reference")
    if not p or not kl or len(kl) < 24 or not p.fell:
        return None
    third = len(kl) // 3
    early = mean(kl.values[: max(2, third // 4)])
    half, whole = mean(kl.values[third // 4 : third // 2]), mean(kl.values[third // 2 : third])
    if whole < 0.1 or (whole < 4 * max(half, 1e-9) and half < 4 * max(early, 1e-9)):
        return None
    signs = [
        s.key
        for n in ("entropy", "length/mean")
        if (s := run.get(n)) and s.first > 0 and not 0.5 <= s.last / s.first <= 2
    ]
    return finding(
        "lr_too_large",
        "serious",
        kl.rows[:third],
        early=early,
        half=half,
        whole=whole,
        gain=p.reward.gain,
        mde=p.reward.mde,
        signs=", ".join(signs) or "-",
        changes=(Change("learning_rate", factor=0.2),),
        metrics=("kl/reference", "reward/mean"),
    )


@rule("sign_inverted", "likely", needs=("reward/mean", "kl/reference"), trend=True, explains=COLLAPSES)
def sign_inverted(run: Run) -> Result:
    """The reward falls steadily from the start (p < .01) while KL grows (p < .01): it learns, the wrong way."""
    p, kl = progress(run), run.comparable("kl/reference")
    if not p or not kl or not p.fell or len(p.reward) < 16 or not (kl.gain > kl.mde and kl.p < 0.01):
        return None
    parts = blocks(p.reward, 4)
    if not parts[0] > parts[1] > parts[2] > parts[3]:
        return None
    return finding(
        "sign_inverted",
        "serious",
        p.reward.rows,
        certainty="ask",
        p=p.reward.p,
        first=p.reward.first,
        last=p.reward.last,
        kl=kl.last,
        metrics=("reward/mean", "kl/reference"),
    )


@rule("grad_spikes", "likely", needs=("grad_norm/total",), trend=True)
def grad_spikes(run: Run) -> Result:
    """Three rows above 10 times the rolling median, each followed by a change of reward or KL that is not noise."""
    grad = run.get("grad_norm/total")
    assert grad
    if len(grad) < 20:
        return None
    spikes: list[int] = []
    for i, x in enumerate(grad.values):
        around = median(grad.values[max(0, i - 10) : i + 11])
        if around > 1e-6 and x > 10 * around:
            spikes.append(grad.rows[i])
    followed = [r for r in spikes if changed_after(run, r)]
    if len(spikes) < 3 or len(followed) < 3:
        return None
    return finding(
        "grad_spikes",
        "warning",
        followed,
        count=len(spikes),
        followed=len(followed),
        worst=grad.high,
        middle=grad.median,
        changes=(Change("grad_clip", 0.5),),
        metrics=("grad_norm/total",),
    )


def changed_after(run: Run, row: int, width: int = 5) -> bool:
    """Whether reward or KL stepped at `row` more than elsewhere in the run, in units of its steps' own MAD."""
    for name in ("reward/mean", "kl/reference"):
        series = run.get(name)
        if not series or len(series) < 20 or row not in series.rows:
            continue
        steps = {
            series.rows[i]: mean(series.values[i + 1 : i + 1 + width]) - mean(series.values[i + 1 - width : i + 1])
            for i in range(width - 1, len(series) - width)
        }
        if row not in steps:
            continue
        usual = median(steps.values())
        scale = 1.4826 * median(abs(x - usual) for x in steps.values())
        if abs(steps[row] - usual) > 4 * max(scale, 1e-12):
            return True
    return False


@rule("pg_loss_growing", "likely", needs=("loss/policy|loss/total", "reward/mean"), trend=True)
def pg_loss_growing(run: Run) -> Result:
    """Only off-policy: |loss| over 5 times its start with the reward down; on policy its value says nothing."""
    p, loss = progress(run), run.get("loss/policy")
    clip, ratio = run.get("clip/fraction"), run.get("ratio/mean")
    stale = run.get("staleness")
    off_policy = (clip and clip.mean > 0.01) or (ratio and abs(ratio.mean - 1) > 0.01) or (stale and stale.mean > 0)
    if not p or not loss or not p.fell or not off_policy or len(loss) < 16:
        return None
    size = [abs(x) for x in loss.values]
    start, end = mean(size[: len(size) // 4]), mean(size[-(len(size) // 4) :])
    if end <= 5 * max(start, 1e-9):
        return None
    changes = (Change("clip", 0.1), Change("learning_rate", 2e-6), Change("grad_clip", 0.5))
    return finding(
        "pg_loss_growing",
        "warning",
        loss.rows[-loss.quarter_size :],
        start=start,
        end=end,
        gain=p.reward.gain,
        changes=changes,
    )


@rule("clip_saturated", "likely", needs=("clip/fraction|clip/high",))
def clip_saturated(run: Run) -> Result:
    clip = run.comparable("clip/fraction") or run.comparable("clip/high")
    if not clip or len(clip) < 8 or mean(clip.tail(0.5)) <= 0.2:
        return None
    rows = [r for r, x in zip(clip.rows, clip.values) if x > 0.2]
    return finding(
        "clip_saturated",
        "warning",
        rows,
        share=mean(clip.tail(0.5)),
        changes=(Change("updates_per_batch", 1), Change("learning_rate", factor=0.5)),
    )


@rule("clip_idle", "likely", needs=("clip/fraction|clip/high",))
def clip_idle(run: Run) -> Result:
    """Nothing is ever clipped although a batch is used several times and the rate is not 0."""
    clip = run.get("clip/fraction") or run.get("clip/high")
    several = run.settings.get("updates_per_batch")
    if not clip or len(clip) < 8 or clip.high > 0 or not isinstance(several, int | float) or several <= 1:
        return None
    return finding("clip_idle", "warning", clip.rows, several=several, count=len(clip))
