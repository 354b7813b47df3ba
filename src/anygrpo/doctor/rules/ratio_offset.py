"""All ratios are equal to one factor that is not 1."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import median, paired
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Old log-probs are off by a constant", "旧的对数概率差了一个常数"),
    "evidence": Text(
        "The mean log-ratio is {offset} in {count} of {of} rows and the mean ratio is {ratio} = e^{offset} within"
        " {gap}: the ratios hardly differ from one another (their spread is {spread}), they are all the same"
        " factor. Updates move single decisions, not all of them alike.",
        "{of} 行中有 {count} 行，平均对数概率比是 {offset}，而平均比率是 {ratio} = e^{offset}，只差"
        " {gap}：各个比率彼此几乎"
        "相同（散布 {spread}），都是同一个倍数。更新改变的是个别决策，不会让全部一起移动。",
    ),
    "cause": Text(
        "Old log-probs from another temperature, mask or normaliser, a sum in place of a mean, or shifted by one"
        " position.",
        "旧的对数概率用了别的温度、掩码或归一化，用求和代替了均值，或错了一位。",
    ),
    "prescription": Text(
        "Recompute the old log-probs with the same temperature and mask as the new ones: before the first update"
        " every ratio is 1.",
        "用与新的对数概率相同的温度和掩码重算旧的：第一次更新之前，每个比率都应为 1。",
    ),
    "principle": Text(
        "log E[r] - E[log r] = 0 only where all ratios are equal (Jensen)",
        "只有所有比率相等时，log E[r] − E[log r] 才为 0（詹森不等式）",
    ),
    "unlike": Text("a policy that moved: there the ratios spread", "策略移动了：那时比率会散开"),
}


@rule(
    stage="scoring",
    order=24,
    certainty="likely",
    experiment="zero_rate",
    needs=("ratio/mean", "log_ratio/mean"),
    explains=(
        "wrong_reference",
        "kl_far",
        "ratio_mean",
        "clip_saturated",
        "no_learning",
        "kl_blowup",
        "log_ratio_explosion",
        "on_policy",
    ),
)
def ratio_offset(run: Columns) -> Result:
    """Per row, spread^2 = 2 (log mean ratio - mean log-ratio), to second order; the offset is far larger."""
    ratio, log = run.comparable("ratio/mean"), run.get("log_ratio/mean")
    assert log
    if not ratio:
        return None
    rows = [(r, x, c) for r, x, c in paired(ratio, log) if x > 0]
    spreads = [(r, c, math.sqrt(2 * max(0.0, math.log(x) - c))) for r, x, c in rows]
    alike = [(r, c, s) for r, c, s in spreads if abs(c) > 0.05 and abs(c) > 4 * s]
    if len(rows) < 3 or len(alike) < 0.9 * len(rows) or alike[0][0] != rows[0][0]:
        return None
    offset = median(c for _, c, _ in alike)
    middle = median(x for _, x, _ in rows)
    return finding(
        "ratio_offset",
        "serious",
        [r for r, _, _ in alike],
        offset=offset,
        ratio=middle,
        gap=abs(middle - math.exp(offset)),
        spread=median(s for _, _, s in alike),
        count=len(alike),
        of=len(rows),
        metrics=("log_ratio/mean", "ratio/mean"),
    )


def fires() -> Case:
    return (healthy(noise=0.0, ratio__mean=flat(math.e), log_ratio__mean=flat(1.0)), {})


def silent() -> Case:
    return (healthy(noise=0.0, ratio__mean=flat(1.0), log_ratio__mean=flat(-0.06)), {})
