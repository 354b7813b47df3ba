"""Much is clipped."""

from __future__ import annotations

from typing import Any

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import rose
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import mean
from anygrpo.doctor.synthetic import Case, flat, healthy

WORDS = {
    "en": {
        "title": "Much is clipped",
        "evidence": "{share:%} of the decisions are clipped in the second half.",
        "cause": "Too many updates on one batch, or steps too large.",
        "prescription": "Fewer updates a batch, or a smaller rate.",
        "principle": "a clipped decision has no gradient",
        "unlike": "clip fractions that sum over micro-batches",
    },
    "zh": {
        "title": "被截断的太多",
        "evidence": "后半程有 {share:%} 的决策被截断。",
        "cause": "同一批数据更新太多次，或步子太大。",
        "prescription": "每批少更新几次，或降低学习率。",
        "principle": "被截断的决策没有梯度",
        "unlike": "跨微批求和的截断比例",
    },
}


@rule(
    stage="drift",
    order=60,
    certainty="likely",
    needs=("clip/fraction|clip/high",),
)
def clip_saturated(run: Columns) -> Result:
    """Over a fifth of the decisions, second half. A note where the reward rises all the same."""
    clip = run.comparable("clip/fraction") or run.comparable("clip/high")
    if not clip or len(clip) < 8 or mean(clip.tail(0.5)) <= 0.2:
        return None
    rows = [r for r, x in zip(clip.rows, clip.values) if x > 0.2]
    return finding(
        "clip_saturated",
        "info" if rose(run) else "warning",
        rows,
        share=mean(clip.tail(0.5)),
        changes=(Change("updates_per_batch", 1), Change("learning_rate", factor=0.5)),
    )


def fires() -> Case:
    return (healthy(clip_ratio__region_mean=flat(0.35)), {})


def silent() -> Case:
    summed: dict[str, Any] = {"actor__clipfrac@sum": flat(0.35)}
    return (healthy(**summed), {})
