"""Much is clipped."""

from __future__ import annotations

from typing import Any

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import rose
from anygrpo.doctor.findings import Change, Finding
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import mean
from anygrpo.doctor.synthetic import Case, flat, healthy

WORDS = {
    "en": {
        "title": "Much is clipped",
        "evidence": "{share:%} of the decisions are clipped in the second half.",
        "title:narrow": "The clip range is so narrow that only the first update of a rollout counts",
        "evidence:narrow": (
            "The clip range is {range}, and {share:%} of the decisions are clipped in the second half: after the first"
            " of {several} updates nearly every ratio is outside."
        ),
        "prescription:narrow": "A clip range of 0.1 to 0.3 for token ratios, or one update a rollout.",
        "cause": "Too many updates on one batch, or steps too large.",
        "prescription": "Fewer updates a batch, or a smaller rate.",
        "principle": "a clipped decision has no gradient",
        "unlike": "clip fractions that sum over micro-batches",
    },
    "zh": {
        "title": "被裁剪的太多",
        "evidence": "后半程有 {share:%} 的决策被裁剪。",
        "title:narrow": "裁剪范围太窄，每个 rollout 只有第一次更新起作用",
        "evidence:narrow": (
            "裁剪范围为 {range}，后半程有 {share:%} 的决策被裁剪："
            "{several} 次更新中，第一次之后几乎所有比值都在范围外。"
        ),
        "prescription:narrow": "token 比值的裁剪范围取 0.1 到 0.3，或每个 rollout 只更新一次。",
        "cause": "同一批数据更新太多次，或步子太大。",
        "prescription": "每批少更新几次，或降低学习率。",
        "principle": "被裁剪的决策没有梯度",
        "unlike": "跨微批求和的裁剪比例",
    },
}


@rule(
    stage="drift",
    order=60,
    certainty="likely",
    experiment="two_rates",
    needs=("clip/fraction|clip/high",),
)
def clip_saturated(run: Columns) -> Result:
    """Over a fifth of the decisions, second half. A note where the reward rises all the same."""
    clip = run.comparable("clip/fraction") or run.comparable("clip/high")
    if not clip or len(clip) < 8 or mean(clip.tail(0.5)) <= 0.2:
        return None
    rows = [r for r, x in zip(clip.rows, clip.values) if x > 0.2]
    if found := narrow(run, rows, mean(clip.tail(0.5))):
        return found
    return finding(
        "clip_saturated",
        "info" if rose(run) else "warning",
        rows,
        share=mean(clip.tail(0.5)),
        changes=(Change("updates_per_batch", 1), Change("learning_rate", factor=0.5)),
    )


def narrow(run: Columns, rows: list[int], share: float) -> Finding | None:
    """A range of token ratios that no update of a policy that learns stays within."""
    width, several = run.settings.get("clip"), run.settings.get("updates_per_batch", 1)
    if not isinstance(width, int | float) or not 0 < width < 1e-3 or not several > 1:
        return None
    if run.settings.get("objective") != "ppo":  # a sequence's mean ratio is that near to 1
        return None
    return finding(
        "clip_saturated",
        "warning",
        rows,
        variant="narrow",
        range=float(width),
        share=share,
        several=several,
        changes=(Change("clip", 0.2),),
        metrics=("clip/fraction",),
    )


def fires() -> Case:
    return (healthy(clip_ratio__region_mean=flat(0.35)), {})


def silent() -> Case:
    summed: dict[str, Any] = {"actor__clipfrac@sum": flat(0.35)}
    return (healthy(**summed), {})
