"""The weights have hardly moved, where the KL cannot tell it."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.groups import dead_share
from anygrpo.doctor.evidence.progress import held_out_rose, progress
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import mean
from anygrpo.doctor.synthetic import Case, dull, flat, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The weights have hardly moved", "权重几乎没有移动"),
    "evidence": Text(
        "{updates} updates together moved the weights by no more than about {path:%} of their length (the sum"
        " of {key}); the reward changed by {gain}, less than the {mde} this log could have shown; peak rate"
        " {lr}. The KL does not show it: it was {first} before any update.",
        "{updates} 次更新合起来，权重最多移动了自身长度的约 {path:%}（{key} 之和）；奖励变化 {gain}，小于这份日志能"
        "显示的 {mde}；最高学习率 {lr}。KL 看不出这一点：第一次更新之前它已是 {first}。",
    ),
    "cause": Text("A learning rate far too small, or a schedule that ends early.", "学习率太小，或调度过早结束。"),
    "prescription": Text(
        "Learning rate times 5 to 10, once the KL is 0 at the start. `anygrpo check` finds the rate.",
        "先让起点的 KL 为 0，再把学习率乘以 5 到 10。`anygrpo check` 能找出合适的学习率。",
    ),
    "principle": Text(
        "the way there is no shorter than the distance: |w_n - w_0| <= sum |w_k+1 - w_k|",
        "路程不短于位移：|w_n - w_0| <= sum |w_k+1 - w_k|",
    ),
    "unlike": Text("a policy that moved and did not gain", "策略动了却没有收益"),
}

SHORT = 0.01
"""Way of all updates as a share of the weights' length: a hundredth."""


@rule(
    stage="step",
    order=21,
    certainty="likely",
    experiment="two_rates",
    needs=("reward/mean", "update/relative_norm", "kl/reference"),
    trend=True,
    explains=("no_learning",),
    live="patient",
)
def weights_still(run: Columns) -> Result:
    """No gain, all updates together shorter than a hundredth of the weights, and a KL that was there before them."""
    p, way, kl = progress(run), run.get("update/relative_norm"), run.comparable("kl/reference")
    if not p or not p.flat or not way or not kl or run.updates < 100 or held_out_rose(run):
        return None
    path = math.fsum(way.values) * run.updates / len(way)
    dead = dead_share(run)
    if path >= SHORT or path == 0 or kl.values[0] < 0.05 or (dead and mean(dead.tail(0.5)) > 0.7):
        return None
    rate = run.get("lr")
    return finding(
        "weights_still",
        "warning",
        way.rows[-way.quarter_size :],
        path=path,
        key=way.key,
        updates=run.updates,
        gain=p.reward.gain,
        mde=p.reward.mde,
        lr=rate.high if rate else "?",
        first=kl.values[0],
        changes=(Change("learning_rate", factor=5.0),),
        metrics=("update/relative_norm", "reward/mean"),
    )


def fires() -> Case:
    return (dull(200, kl=flat(0.4), update__relative_norm=flat(2e-5)), {})


def silent() -> Case:
    return (dull(200, kl=line(0.0, 0.4), update__relative_norm=flat(2e-5)), {})
