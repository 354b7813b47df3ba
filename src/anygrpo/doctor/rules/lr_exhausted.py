"""Still rising when the rate ran out."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import blocks, progress
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Still rising when the rate ran out", "学习率用完时还在上升"),
    "evidence": Text(
        "The rate ended at {end} (maximum {top}); the reward still rose from {third} in the third quarter to"
        " {fourth} in the last.",
        "学习率最后是 {end}（最高 {top}）；奖励从第三个四分之一的 {third} 到最后的 {fourth} 仍在上升。",
    ),
    "cause": Text("The schedule was shorter than the task.", "日程比任务短。"),
    "prescription": Text("A longer schedule.", "更长的日程。"),
    "principle": Text("a rate of 0 ends learning, not the task", "学习率为 0 结束的是学习，不是任务"),
    "unlike": Text("a plateau", "平台"),
}


@rule(
    stage="outcome",
    order=40,
    certainty="likely",
    experiment="two_rates",
    needs=("lr", "reward/mean"),
    trend=True,
)
def lr_exhausted(run: Columns) -> Result:
    """Still rising over the second half when the rate has fallen below a twentieth of its maximum."""
    p, rate = progress(run), run.get("lr")
    if not p or not rate or len(p.reward) < 40 or not p.rose or rate.high <= 0:
        return None
    if rate.values[-1] > 0.05 * rate.high:
        return None
    parts = blocks(p.reward, 4)
    width = p.reward.noise * math.sqrt(2 / p.reward.quarter_size)
    if parts[3] - parts[2] < 2 * width or parts[2] - parts[1] < 0:
        return None
    return finding(
        "lr_exhausted",
        "info",
        rate.rows[-5:],
        end=rate.values[-1],
        top=rate.high,
        third=parts[2],
        fourth=parts[3],
        changes=(Change("max_steps", factor=2.0),),
        metrics=("reward/mean", "lr"),
    )


def fires() -> Case:
    return (healthy(120, learning_rate=lambda t: max(0.0, 1e-6 * (1 - t))), {})


def silent() -> Case:
    return (healthy(120, reward=lambda t: min(0.7, 0.3 + t), learning_rate=lambda t: 1e-6 * (1 - t)), {})
