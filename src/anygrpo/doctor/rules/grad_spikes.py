"""Gradient spikes that change the policy."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import median
from anygrpo.doctor.synthetic import Case, spiky
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Gradient spikes that change the policy", "改变了策略的梯度尖峰"),
    "evidence": Text(
        "{count} rows above 10 times the rolling median (worst {worst}, median {middle}); after {followed} of"
        " them reward or KL moved beyond noise.",
        "{count} 行超过滚动中位数的 10 倍（最大 {worst}，中位数 {middle}）；其中 {followed} 次之后奖励或 KL"
        " 的变化超出噪声。",
    ),
    "cause": Text("Outlier batches without gradient clipping.", "没有梯度裁剪，遇到离群批次。"),
    "prescription": Text(
        "Clip the gradient norm; lower the rate if spikes stay.", "裁剪梯度范数；尖峰还在就降低学习率。"
    ),
    "principle": Text("one batch out of proportion", "一个批次不成比例"),
    "unlike": Text(
        "a small median absolute deviation: spikes with no consequence are not counted",
        "离散度本来就小：没有后果的尖峰不算",
    ),
}


@rule(
    stage="drift",
    order=50,
    certainty="likely",
    experiment="two_rates",
    needs=("grad_norm/total",),
    trend=True,
    explains=("sign_inverted", "reward_fell", "late_collapse"),
)
def grad_spikes(run: Columns) -> Result:
    """Three rows above 10 times the rolling median, each followed by a change of reward or KL that is not noise.

    Where groups without spread leave no gradient between them, the size that the run began with is no spike.
    """
    grad = run.get("grad_norm/total")
    assert grad
    if len(grad) < 20:
        return None
    spikes: list[int] = []
    usual = median(grad.values[: grad.quarter_size])
    for i, x in enumerate(grad.values):
        around = median(grad.values[max(0, i - 10) : i + 11])
        if around > 1e-6 and x > 10 * around and x > 3 * usual:
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


def changed_after(run: Columns, row: int, width: int = 5) -> bool:
    """Whether reward or KL stepped at `row` more than elsewhere in the run, in units of its steps' own MAD.

    Medians, and the row itself is left out: a KL that spikes with the gradient, or near it, and comes back has changed
    nothing.
    """
    for name in ("reward/mean", "kl/reference"):
        series = run.get(name)
        if not series or len(series) < 20 or row not in series.rows:
            continue
        steps = {
            series.rows[i]: median(series.values[i + 1 : i + 1 + width]) - median(series.values[i - width : i])
            for i in range(width, len(series) - width)
        }
        if row not in steps:
            continue
        usual = median(steps.values())
        scale = 1.4826 * median(abs(x - usual) for x in steps.values())
        if abs(steps[row] - usual) > 4 * max(scale, 1e-12):
            return True
    return False


def fires() -> Case:
    return (spiky(harm=True), {})


def silent() -> Case:
    return (spiky(harm=False), {})
