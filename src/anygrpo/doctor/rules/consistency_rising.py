"""The consistency loss rises."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series
from anygrpo.doctor.synthetic import Case, healthy, wiggle
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The consistency loss rises", "一致性损失在上升"),
    "evidence": Text("{least} at its minimum, {now} now (p = {p}).", "最低 {least}，现在 {now}（p = {p}）。"),
    "cause": Text("The other terms pull the features apart.", "其他项把特征拉开了。"),
    "prescription": Text("Lower its weight or schedule it.", "降低它的权重，或随进度安排。"),
    "principle": Text("over its own minimum, p < .01", "高于自身最小值，p < .01"),
    "unlike": Text("features that grow in scale", "特征尺度变大"),
}


@rule(
    stage="outcome",
    order=30,
    certainty="likely",
    experiment="two_rates",
    needs=("loss/consistency",),
    trend=True,
)
def consistency_rising(run: Columns) -> Result:
    loss = run.get("loss/consistency")
    if not loss or len(loss) < 16:
        return None
    smooth = loss.smooth()
    least = min(smooth)
    after = loss.values[smooth.index(least) :]
    tail = Series(loss.name, loss.key, loss.rows[-len(after) :], after)
    if least <= 0 or smooth[-1] <= 1.5 * least or len(after) < 8 or not tail.trending or tail.gain <= 0:
        return None
    return finding(
        "consistency_rising",
        "warning",
        tail.rows,
        least=least,
        now=smooth[-1],
        p=tail.p,
        changes=(Change("lambda_consistency", factor=0.5),),
    )


def fires() -> Case:
    return (healthy(loss__consistency=lambda t: 0.2 if t < 0.3 else 0.2 + t), {})


def silent() -> Case:
    return (healthy(loss__consistency=wiggle(0.2, 0.01)), {})
