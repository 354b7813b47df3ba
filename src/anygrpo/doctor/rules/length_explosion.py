"""Answers grow without profit."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import held_out_rose, progress
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, dull, healthy, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Answers grow without profit", "回答变长却没有收益"),
    "title:earned": Text("Answers grow, and earn it", "回答变长，也换来了成绩"),
    "evidence": Text(
        "Mean length went from {first} to {last} ({ratio} times) and the reward did not follow.",
        "平均长度从 {first} 到 {last}（{ratio} 倍），奖励没有跟上。",
    ),
    "evidence:earned": Text(
        "Mean length went from {first} to {last}, and reward or held-out results rose with it.",
        "平均长度从 {first} 到 {last}，奖励或留出评测也随之上升。",
    ),
    "cause": Text(
        "Per-sequence averaging favours long wrong answers; nothing punishes length.",
        "按序列平均偏爱又长又错的回答；没有对长度的惩罚。",
    ),
    "prescription": Text(
        "Token-mean or Dr. GRPO loss, a penalty near the limit.", "用 token-mean 或 Dr. GRPO 损失，接近上限时加惩罚。"
    ),
    "prescription:earned": Text("", ""),
    "principle": Text("longer than 1.5 times its start", "长于起点的 1.5 倍"),
    "unlike": Text("earned reasoning", "换来成绩的推理"),
}


@rule(
    stage="aim",
    order=30,
    certainty="likely",
    experiment="cap_doubled",
    needs=("length/mean",),
    trend=True,
    explains=("truncation",),
)
def length_explosion(run: Columns) -> Result:
    """Over 1.5 times its start and neither reward nor held-out results rise with it; earned reasoning is a note."""
    length, p = run.comparable("length/mean"), progress(run)
    if not length or len(length) < 16 or length.first <= 0 or length.last <= 1.5 * length.first or not length.trending:
        return None
    earned = held_out_rose(run) or (p is not None and p.rose)
    changes = () if earned else (Change("loss_reduction", "token-mean"), Change("overlong_penalty", "on"))
    return finding(
        "length_explosion",
        "info" if earned else "warning",
        length.rows[-length.quarter_size :],
        variant="earned" if earned else "",
        first=length.first,
        last=length.last,
        ratio=length.last / length.first,
        changes=changes,
        metrics=("length/mean", "reward/mean"),
    )


def fires() -> Case:
    return (dull(completions__mean_length=line(200, 500)), {})


def silent() -> Case:
    return (healthy(completions__mean_length=line(200, 500)), {})
