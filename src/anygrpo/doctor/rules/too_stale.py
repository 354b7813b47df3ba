"""Samples are too old for the updates made since."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.rules.sampler_mismatch import LIMITS
from anygrpo.doctor.series import median
from anygrpo.doctor.synthetic import Case, Value, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Samples are too old for the updates made since", "样本相对其后的更新来说太旧"),
    "evidence": Text(
        "{name} is {old} in the median of the rows whose samples are {age} updates old, and {young} where they are"
        " the present weights' own ({count} of {of} rows beyond what one policy gives).",
        "样本落后 {age} 次更新的各行中 {name} 的中位数为 {old}，而样本来自当前权重时为 {young}"
        "（{of} 行中有 {count} 行超出同一策略应有的范围）。",
    ),
    "cause": Text(
        "More or larger updates between sampling and training than the importance correction can bridge.",
        "采样与训练之间的更新太多或太大，重要性校正补不回来。",
    ),
    "prescription": Text(
        "A smaller bound on staleness, fewer updates a step, or a smaller learning rate.",
        "减小陈旧度上限、减少每步更新次数，或降低学习率。",
    ),
    "principle": Text(
        "the variance of an importance weight grows with the distance of the two policies",
        "重要性权重的方差随两个策略的距离增大",
    ),
    "unlike": Text(
        "a sampler that computes otherwise: its distance is there at age 0 too",
        "计算方式不同的采样端：陈旧度为 0 时距离也在",
    ),
}


@rule(
    stage="scoring",
    order=45,
    certainty="likely",
    needs=("staleness", "kl/rollout|mismatch/ess"),
    explains=("sampler_mismatch", "stale_rollouts"),
)
def too_stale(run: Columns) -> Result:
    """KL(rollout, train) above .1 or ESS below .3 in a fifth of the rows of old samples, and in none of fresh ones."""
    age = run.get("staleness")
    assert age
    at = age.at()
    for name in ("kl/rollout", "mismatch/ess"):
        series = run.comparable(name)
        if not series:
            continue
        pairs = [(r, x) for r, x in zip(series.rows, series.values) if r in at]
        fresh = [x for r, x in pairs if at[r] == 0]
        old = [(r, x) for r, x in pairs if at[r] > 0]
        rows = [r for r, x in old if LIMITS[name](x)]
        if not fresh or any(map(LIMITS[name], fresh)) or len(rows) < max(3, 0.2 * len(old)):
            continue
        return finding(
            "too_stale",
            "warning",
            rows,
            name=series.key,
            old=median([x for _, x in old]),
            young=median(fresh),
            age=median([at[r] for r, _ in old]),
            count=len(rows),
            of=len(old),
            changes=(Change("max_staleness", factor=0.5), Change("learning_rate", factor=0.5)),
            metrics=(name, "staleness"),
        )
    return None


def late(x: float) -> Value:
    """0 in the first row."""
    return lambda t: x if t > 0 else 0.0


def fires() -> Case:
    return (healthy(staleness=late(4.0), kl__rollout=late(0.3)), {})


def silent() -> Case:
    return (healthy(staleness=late(4.0), kl__rollout=flat(0.3)), {})
