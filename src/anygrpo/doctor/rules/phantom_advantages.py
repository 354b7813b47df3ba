"""Noise is normalised into full-sized advantages."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import progress
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series
from anygrpo.doctor.synthetic import Case, flat, healthy, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Noise is normalised into full-sized advantages", "噪声被归一化成了完整的优势"),
    "evidence": Text(
        "The reward's std is {std}, {share:%} of the range it went through ({span}), but the gradient still has"
        " {grad:%} of its first size.",
        "奖励的标准差是 {std}，只有全程范围 {span} 的 {share:%}，而梯度仍有最初的 {grad:%}。",
    ),
    "evidence:level": Text(
        "The reward's std is {std}, {share:%} of its level ({level}), and never was more; the advantages' std is"
        " {advantage}, and nothing was gained.",
        "奖励的标准差是 {std}，只有其水平 {level} 的 {share:%}，从未更大；优势的标准差却是 {advantage}，"
        "也没有任何提升。",
    ),
    "cause": Text("Dividing by the std of the group however small it is.", "不论组内标准差多小都去除以它。"),
    "prescription": Text(
        "Give a group no advantage where the outcome does not differ, or do not divide by the std.",
        "结果没有差别的组不给优势，或者不除以标准差。",
    ),
    "principle": Text("noise divided by its own std has std 1", "噪声除以自身的标准差，标准差总是 1"),
    "unlike": Text("Dr. GRPO, whose gradient shrinks with the spread", "Dr. GRPO：其梯度随差异一起变小"),
}


@rule(
    stage="advantages",
    order=20,
    certainty="likely",
    experiment="larger_group",
    needs=("reward/std_within|reward/std", "grad_norm/total", "reward/mean"),
    trend=True,
)
def phantom_advantages(run: Columns) -> Result:
    """The reward hardly varies any more (under 1% of the range it went through), yet the gradient is large.

    Or it never did: its spread is under .2% of its level throughout, advantages are normalised, and nothing was gained.
    """
    within = run.get("reward/std_within") or run.get("reward/std")
    grad, reward = run.get("grad_norm/total"), run.get("reward/mean")
    if not within or not grad or not reward:
        return None
    if never_varied(run, within, reward):
        spread = run.get("advantage/std")
        return finding(
            "phantom_advantages",
            "warning",
            within.rows,
            variant="level",
            std=within.median,
            level=reward.median,
            share=within.median / abs(reward.median),
            advantage=spread.median if spread else 0.0,
            changes=(Change("scale_rewards", "none"),),
            metrics=("reward/std_within", "grad_norm/total", "reward/mean"),
        )
    span = reward.high - reward.low
    dead = run.get("groups/dead")
    if len(within) < 8 or span <= 0 or within.last >= 0.01 * span or within.last <= 0 or (dead and dead.last > 0.9):
        return None
    if grad.last <= 0.3 * grad.first or within.first <= 0.05 * span:
        return None
    rows = [r for r, x in zip(within.rows, within.values) if x < 0.01 * span]
    return finding(
        "phantom_advantages",
        "warning",
        rows,
        std=within.last,
        span=span,
        share=within.last / span,
        grad=grad.last / grad.first,
        changes=(Change("scale_rewards", "none"),),
        metrics=("reward/std_within", "grad_norm/total", "reward/mean"),
    )


def never_varied(run: Columns, within: Series, reward: Series) -> bool:
    spread, p = run.get("advantage/std"), progress(run)
    tiny = (
        len(within) >= 8 and 0 < within.median < 0.002 * abs(reward.median) and within.high < 0.01 * abs(reward.median)
    )
    return bool(tiny and spread and spread.median > 0.5 and p and not p.rose)


def fires() -> Case:
    return (
        healthy(
            reward=lambda t: min(0.99, 0.4 + 2 * t), reward_std=lambda t: max(0.0005, 0.3 - t), grad_norm=flat(5.0)
        ),
        {},
    )


def silent() -> Case:
    return (
        healthy(
            reward=lambda t: min(0.99, 0.4 + 2 * t), reward_std=lambda t: max(0.0005, 0.3 - t), grad_norm=line(5, 0.1)
        ),
        {},
    )
