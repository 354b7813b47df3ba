"""Groups of one: there is no baseline."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series, paired
from anygrpo.doctor.synthetic import Case, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text(
        "There is no baseline: groups of one, or nothing subtracted", "没有基线：每组只有一个样本，或没有减去均值"
    ),
    "evidence": Text(
        "In all {count} rows the advantages have the same maximum, minimum and mean as the scores (mean"
        " advantage {advantage}, mean reward {reward}): nothing was subtracted.",
        "在全部 {count} 行里，优势的最大、最小和均值都与分数相同（平均优势 {advantage}，平均奖励 {reward}）：什"
        "么也没有减去。",
    ),
    "evidence:mean": Text(
        "In all {count} rows the mean advantage is the mean reward ({advantage}, {reward}), where a baseline would"
        " leave about 0.",
        "在全部 {count} 行里，平均优势等于平均奖励（{advantage}，{reward}）；减去基线后应约为 0。",
    ),
    "cause": Text(
        "One sample per prompt; prompts that do not share an id, so that each sample is its own group; or an estimator"
        " without a baseline (advantage = reward).",
        "每个提示只采一个样本；提示没有共同的编号，每个样本自成一组；或估计方法没有基线（优势就是奖励）。",
    ),
    "prescription": Text(
        "Sample at least 4, better 8 or 16, per prompt, and check that samples of one prompt carry the same group id;"
        " where they do, subtract the group's mean.",
        "每个提示至少采 4 个，最好 8 或 16 个，并确认同一提示的样本带有同一个组号；若无误，则减去组均值。",
    ),
    "principle": Text("A = r - mean over one sample", "只有一个样本时 A = r - 均值"),
    "unlike": Text("Dr. GRPO, which still subtracts the mean", "Dr. GRPO：它仍然减去均值"),
}


@rule(
    stage="groups",
    order=10,
    certainty="certain",
    needs=("advantage/max|advantage/mean", "reward/mean"),
    explains=(
        "difficulty_dominates",
        "no_learning",
        "lr_too_small",
        "advantage_compressed",
        "starved_groups",
        "late_collapse",
        "grad_spikes",
    ),
)
def group_of_one(run: Columns) -> Result:
    """Every statistic of the advantages equals that of the scores: nothing was subtracted.

    Extremes are compared where they were logged: means may differ, since one is per token and the other per sample.
    Extremes that never change prove nothing (the best score is 1, and so is the best rank), nor does a mean of 0.
    Certain only with both extremes: an estimator may leave the mean alone and still scale or shift within groups.
    """
    pairs = [(run.get(f"advantage/{end}"), run.get(f"reward/{end}")) for end in ("max", "min")]
    extremes = [(a, b) for a, b in pairs if a and b and any((*a.values, *b.values))]  # 0 beside 0 tells nothing
    if not all(same(a, b) for a, b in extremes):
        return None
    a, b = run.get("advantage/mean"), run.get("reward/mean")
    assert b
    if len(b) < 3 or b.constant or (a and abs(a.mean - b.mean) > 0.5 * abs(b.mean)):
        return None
    moving = [x for x, _ in extremes if not x.constant]
    proved = len(extremes) == 2 and bool(moving)
    if not proved and not (a and same(a, b)):
        return None
    size = run.settings.get("group_size")
    return finding(
        "group_of_one",
        "serious",
        b.rows,
        certainty="certain" if proved else "likely",
        variant="" if proved else "mean",
        changes=() if isinstance(size, int) and size > 1 else (Change("group_size", 8),),
        count=len(b.rows),
        reward=b.mean,
        advantage=a.mean if a else b.mean,
    )


def same(a: Series, b: Series) -> bool:
    """Equal in every common row, to rounding and an epsilon in a denominator."""
    pairs = paired(a, b)
    size = max((abs(x) for _, x, _ in pairs), default=0.0)
    return len(pairs) >= 3 and size > 1e-6 and all(abs(x - y) <= 2e-3 * max(abs(y), 0.05 * size) for _, x, y in pairs)


def fires() -> Case:
    return (
        [
            {"step": i, "critic/score/mean": x, "critic/score/max": x + 0.2, "critic/score/min": x - 0.2}
            | {"critic/advantages/mean": x, "critic/advantages/max": x + 0.2, "critic/advantages/min": x - 0.2}
            for i, x in enumerate(math.sin(j) for j in range(30))
        ],
        {},
    )


def silent() -> Case:
    return (healthy(critic__score__max=1.0, critic__advantages__max=1.5, critic__advantages__mean=0.0), {})
