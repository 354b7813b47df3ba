"""The off-policy loss grows."""

from __future__ import annotations

from typing import Any

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import progress
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import mean
from anygrpo.doctor.synthetic import Case, flat, healthy, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The off-policy loss grows", "异策略损失在增长"),
    "evidence": Text(
        "|policy loss| went from {start} to {end} while the reward changed by {gain}.",
        "|策略损失| 从 {start} 涨到 {end}，奖励变化 {gain}。",
    ),
    "cause": Text("Old samples, unbounded negative terms.", "样本太旧，负项没有界。"),
    "prescription": Text("Narrower clip, smaller rate, gradient clipping.", "收窄裁剪范围、降低学习率、裁剪梯度。"),
    "principle": Text("off-policy terms grow without a bound", "异策略项的增长没有界"),
    "unlike": Text("the value of the loss on policy, and its sign: harmless", "同策略时损失的数值和符号：无害"),
}


@rule(
    stage="drift",
    order=40,
    certainty="likely",
    experiment="two_rates",
    needs=("loss/policy|loss/total", "reward/mean"),
    trend=True,
)
def pg_loss_growing(run: Columns) -> Result:
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


OFF_POLICY: dict[str, Any] = {"clip_ratio__region_mean": flat(0.1)}


def fires() -> Case:
    return (
        healthy(reward=line(0.7, 0.3), kl=flat(0.01), loss__policy=lambda t: 0.01 + 0.5 * t, **OFF_POLICY),
        {},
    )


def silent() -> Case:
    return (healthy(reward=line(0.7, 0.3), kl=flat(0.01), loss__policy=lambda t: 0.01 + 0.5 * t), {})
