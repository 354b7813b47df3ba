"""Only one side is ever clipped."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Only one side is ever clipped", "只有一侧被裁剪"),
    "evidence": Text(
        "{share:%} of the decisions are clipped at the {side} bound and {other:%} at the other. Updates move ratios"
        " both ways; all of them on one side is a shift of the log-probs, or one bound is out of reach.",
        "{share:%} 的决策在 {side} 侧被裁剪，另一侧只有 {other:%}。更新会让比率向两边移动；全在一侧，说明"
        "对数概率整体偏移，"
        "或有一侧的界限根本碰不到。",
    ),
    "cause": Text(
        "Old log-probs from another temperature or mask (all ratios shifted), or a bound set where it is never met.",
        "旧的对数概率用了别的温度或掩码（所有比率一起偏移），或某一侧的界限设得碰不到。",
    ),
    "prescription": Text(
        "Compare old and new log-probs before the first update: their difference must be 0.",
        "在第一次更新之前比较新旧对数概率：差应为 0。",
    ),
    "principle": Text("E[ratio] = 1: what rises is paid for by what falls", "E[比率] = 1：有升必有降"),
    "unlike": Text(
        "a wider upper bound (clip-higher), which is still met at times", "放宽上界（clip-higher）：有时仍会碰到"
    ),
}


@rule(
    stage="drift",
    order=62,
    certainty="ask",
    experiment="zero_rate",
    needs=("clip/low", "clip/high"),
)
def clip_one_sided(run: Columns) -> Result:
    low, high = run.comparable("clip/low"), run.comparable("clip/high")
    if not low or not high or min(len(low), len(high)) < 8:
        return None
    more, less, side = (low, high, "lower") if low.mean > high.mean else (high, low, "upper")
    if more.mean <= 0.02 or less.mean > 0.005 * more.mean:
        return None
    severity = "warning" if more.mean > 0.1 else "info"
    return finding("clip_one_sided", severity, more.rows, share=more.mean, other=less.mean, side=side)


def fires() -> Case:
    return (healthy(clip_ratio__low_mean=0.0, clip_ratio__high_mean=flat(0.15)), {})


def silent() -> Case:
    return (healthy(clip_ratio__low_mean=flat(0.01), clip_ratio__high_mean=flat(0.03)), {})
