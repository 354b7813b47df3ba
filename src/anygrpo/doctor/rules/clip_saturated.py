"""Much is clipped."""

from __future__ import annotations

import math
from typing import Any

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import rose
from anygrpo.doctor.findings import Change, Finding
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import mean, paired
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Much is clipped", "被裁剪的太多"),
    "evidence": Text("{share:%} of the decisions are clipped in the second half.", "后半程有 {share:%} 的决策被裁剪。"),
    "title:narrow": Text(
        "The clip range is so narrow that only the first update of a rollout counts",
        "裁剪范围太窄，每个 rollout 只有第一次更新起作用",
    ),
    "evidence:narrow": Text(
        "The clip range is {range}, and {share:%} of the decisions are clipped in the second half: after the first"
        " of {several} updates nearly every ratio is outside.",
        "裁剪范围为 {range}，后半程有 {share:%} 的决策被裁剪：{several} 次更新中，第一次之后几乎所有比值都在范围外。",
    ),
    "prescription:narrow": Text(
        "A clip range of 0.1 to 0.3 for token ratios, or one update a rollout.",
        "token 比值的裁剪范围取 0.1 到 0.3，或每个 rollout 只更新一次。",
    ),
    "title:inside": Text(
        "The clip range is so narrow that most of each update is cut off", "裁剪范围太窄，几乎所有更新都被裁掉"
    ),
    "prescription:inside": Text(
        "A clip range of 0.1 to 0.3 for token ratios; only a sequence's (GSPO) is so narrow.",
        "token 比值的裁剪范围取 0.1 到 0.3；整条序列的比值（GSPO）本来就该这么窄。",
    ),
    "evidence:inside": Text(
        "{share:%} of the decisions are clipped in the second half, and yet the ratios lie so near to 1 that the"
        " clip range cannot be wider than {range} (the share beyond a distance is at most the mean square over its"
        " square). Token ratios are usually clipped from 0.2 on.",
        "后半程有 {share:%} 的决策被裁剪，可是比值离 1 很近，裁剪范围不可能宽于 {range}"
        "（超出某一距离的份额不大于均方除以该距离的平方）。token 比值通常从 0.2 起才裁剪。",
    ),
    "cause": Text("Too many updates on one batch, or steps too large.", "同一批数据更新太多次，或步子太大。"),
    "prescription": Text("Fewer updates a batch, or a smaller rate.", "每批少更新几次，或降低学习率。"),
    "principle": Text("a clipped decision has no gradient", "被裁剪的决策没有梯度"),
    "unlike": Text("clip fractions that sum over micro-batches", "跨微批求和的裁剪比例"),
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
    share = mean(clip.tail(0.5))
    if found := narrow(run, rows, share) or inside(run, rows, share):
        return found
    return finding(
        "clip_saturated",
        "info" if rose(run) else "warning",
        rows,
        share=share,
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


MUCH = 0.3
USUAL = 0.05
"""A clip range of token ratios below this is no usual one: 0.1 to 0.3 are."""


def inside(run: Columns, rows: list[int], share: float) -> Finding | None:
    """Much is clipped although the ratios lie near 1: each row bounds the range, by Chebyshev and by the largest ratio.

    KL to the sampler is half the mean square of small log-ratios where it is estimated by squares (k2, k3), which
    frameworks that log minus the mean log-ratio (k1) do not.
    """
    clip, own, far = run.comparable("clip/fraction"), run.comparable("kl/behaviour"), run.get("log_ratio/abs_max")
    if not clip or run.settings.get("objective", "ppo") != "ppo" or "clip" in run.settings:
        return None
    squares = own if own and own.low > -1e-6 and run.framework != "verl" else None
    mean_square = [math.sqrt(2 * max(0.0, kl) / x) for _, x, kl in paired(clip, squares) if x > MUCH] if squares else []
    largest = [most for _, x, most in paired(clip, far) if x > MUCH] if far else []
    widths = [sorted(found)[len(found) // 4] for found in (mean_square, largest) if len(found) >= 8]
    if not widths or not 0 < min(widths) < USUAL:
        return None
    return finding(
        "clip_saturated",
        "warning",
        rows,
        variant="inside",
        range=min(widths),
        share=share,
        changes=(Change("clip", 0.2),),
        metrics=("clip/fraction", "kl/behaviour"),
    )


def fires() -> Case:
    return (healthy(clip_ratio__region_mean=flat(0.35)), {})


def silent() -> Case:
    summed: dict[str, Any] = {"actor__clipfrac@sum": flat(0.35)}
    return (healthy(**summed), {})
