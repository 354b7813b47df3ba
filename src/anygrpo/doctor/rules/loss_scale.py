"""A loss that its advantages and ratios cannot make."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import loss_kl_slope
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series, median
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The loss is far larger than its advantages and ratios allow", "损失远大于其优势与比值所能给出的值"),
    "evidence": Text(
        "{name} is {size} (median of {count} rows). A mean of ratio x advantage stays below {bound} with the ratios"
        " and advantages of this log.",
        "{name} 为 {size}（{count} 行的中位数）。按本日志的比值和优势，比值 × 优势的均值不会超过 {bound}。",
    ),
    "cause": Text(
        "A sum in place of a mean (over dimensions, steps or tokens), raw rewards, or another term.",
        "用了求和而不是求平均（对维度、步或 token），奖励未归一化，或另有一项。",
    ),
    "prescription": Text(
        "Divide by what is summed over, or name the terms apart; log the largest advantage and ratio. The gradient"
        " norm's limit hides the scale, and the KL's weight means nothing beside it.",
        "除以求和的个数，或把各项分开记录；记录最大优势和最大比值。梯度范数上限掩盖了尺度，KL 的权重在它旁边没有意义。",
    ),
    "principle": Text("|mean(ratio x A)| <= max ratio x max |A|", "|均值(比值 × A)| <= 最大比值 × 最大 |A|"),
    "unlike": Text(
        "a loss summed over tokens on purpose: its scale is the length", "有意对 token 求和的损失：其尺度就是长度"
    ),
}
SLACK = 1000.0
"""Losses summed over a sample's tokens are this much larger than their mean, on purpose."""
LARGE = 10.0
"""An advantage that no normaliser exceeds, where the log has none."""


@rule(
    stage="step",
    order=4,
    certainty="likely",
    experiment="one_batch",
    needs=("loss/policy|loss/total",),
    explains=("grad_spikes",),
)
def loss_scale(run: Columns) -> Result:
    """The policy's own loss where it is logged; else the total, as long as no KL in it says where it comes from."""
    own = run.get("loss/policy")
    loss = own or run.get("loss/total")
    if not loss or len(loss) < 3 or run.preference or (own is None and explained(run, loss)):
        return None
    size, bound = median(abs(x) for x in loss.values), allowed(run)
    if size <= SLACK * bound:
        return None
    return finding(
        "loss_scale",
        "warning",
        loss.rows,
        name=loss.key,
        size=size,
        count=len(loss),
        bound=bound,
        changes=(Change("loss_reduction", "token-mean"),),
        metrics=(loss.name,),
    )


def allowed(run: Columns) -> float:
    """Largest |advantage| times largest ratio, by what is logged; else `LARGE` times the mean ratio."""
    advantage = run.get("advantage/abs_max") or run.get("advantage/max")
    ratio = run.get("ratio/max") or run.get("ratio/mean")
    reward = run.get("reward/std") or run.get("reward/std_within")
    raw = max([abs(x) for x in reward.values], default=1.0) if reward else 1.0
    largest = max(map(abs, advantage.values)) if advantage else LARGE * max(raw, 1.0)
    return max(largest, 1.0) * max(1.0, max(ratio.values) if ratio else 1.0)


def explained(run: Columns, loss: Series) -> bool:
    """Whether a KL of that size is in the total."""
    kl = run.get("kl/reference")
    return loss_kl_slope(run) is not None or (
        kl is not None and max(map(abs, kl.values)) > median(map(abs, loss.values))
    )


def fires() -> Case:
    return (healthy(loss__policy=flat(1e5), ratio__mean=flat(1.0)), {})


def silent() -> Case:
    return (healthy(loss__policy=flat(1.7e8), ratio__mean=flat(4.9e8)), {})
