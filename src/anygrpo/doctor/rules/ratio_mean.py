"""The mean ratio is not 1."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series, std
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text(
        "The mean ratio is not 1: what is scored is not what sampled", "比率的均值不是 1：打分的不是采样的策略"
    ),
    "evidence": Text(
        "Over {count} rows the mean ratio is {mean} with a standard error of {error}. For samples of the policy in"
        " the denominator its expectation is 1, whatever the policy in the numerator is.",
        "{count} 行合起来，比率的均值是 {mean}，标准误 {error}。样本若由分母的策略采出，期望必为 1，不论"
        "分子是什么策略。",
    ),
    "cause": Text(
        "The denominator is another policy than the one that sampled: another temperature, mask, mode (dropout) or"
        " version of the weights; or a ratio of summed log-probs.",
        "分母不是采样的策略：温度、掩码、模式（dropout）或权重版本不同；或比率用的是求和后的对数概率。",
    ),
    "prescription": Text(
        "Score one batch with the policy that sampled it, before any update: every ratio must be 1"
        " (`anygrpo check` does this). A smaller rate or a narrower clip mends nothing here.",
        "在任何更新之前，用采样的策略给同一批打分：每个比率都应为 1（`anygrpo check` 会做）。调小学习率或"
        "收窄裁剪都无济于事。",
    ),
    "principle": Text(
        "E[p_new(x) / p_old(x)] = 1 for x drawn from p_old", "x 由 p_old 采出时，E[p_new(x) / p_old(x)] = 1"
    ),
    "unlike": Text(
        "many updates on one batch, which move the mean by a few percent", "同一批上多次更新，只会让均值偏离百分之几"
    ),
}
MATERIAL = 0.25
"""Smaller deviations are what several updates on one batch, or clipped means, can do."""


@rule(
    stage="scoring",
    order=26,
    certainty="likely",
    experiment="zero_rate",
    needs=("ratio/mean",),
    explains=(
        "wrong_reference",
        "kl_far",
        "clip_saturated",
        "no_learning",
        "lr_too_small",
        "kl_blowup",
        "log_ratio_explosion",
        "reward_fell",
    ),
)
def ratio_mean(run: Columns) -> Result:
    """All rows together against 1, and most rows on the same side of it."""
    ratio = run.comparable("ratio/mean")
    if not ratio or len(ratio) < 4:
        return None
    error = standard_error(ratio)
    off = ratio.mean - 1
    above = sum(x > 1 for x in ratio.values)
    if abs(off) <= max(MATERIAL, 6 * error) or max(above, len(ratio) - above) < 0.9 * len(ratio):
        return None
    return finding(
        "ratio_mean",
        "serious",
        ratio.rows,
        mean=ratio.mean,
        error=error,
        count=len(ratio),
        metrics=("ratio/mean",),
    )


def standard_error(series: Series) -> float:
    return std(series.values) * math.sqrt(series.inertia / len(series))


def fires() -> Case:
    return (healthy(ratio__mean=flat(5.0)), {})


def silent() -> Case:
    return (healthy(ratio__mean=flat(1.05)), {})
