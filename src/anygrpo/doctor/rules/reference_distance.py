"""The distance to the reference is none: negative, or two numbers of it that differ by orders of magnitude."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.findings import Change
from anygrpo.doctor.log import number
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import median
from anygrpo.doctor.synthetic import Case, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("What is logged as distance to the reference is none", "所记录的与参考策略的距离不成其为距离"),
    "evidence": Text(
        "{name} is {value} (median of {count} rows, the highest {high}). On the policy's own samples the mean of"
        " log(policy / reference) is at least 0 in expectation, and below -c with a probability of at most e^-c.",
        "{name} 为 {value}（{count} 行的中位数，最高 {high}）。在策略自己的样本上，log(策略 / 参考) 的均值在期望上"
        "不小于 0，低于 -c 的概率至多 e^-c。",
    ),
    "evidence:two": Text(
        "The log-probs are {difference} apart (median of {count} rows), and {name} is {value}: two numbers of one"
        " distance, and one of them is more than 100 times the other.",
        "两个对数概率相差 {difference}（{count} 行的中位数），而 {name} 为 {value}：同一距离的两个数，"
        "其中一个是另一个的 100 倍以上。",
    ),
    "title:summed": Text("Two meters of one distance: a sum and a mean", "同一距离的两种量法：求和与取平均"),
    "evidence:summed": Text(
        "The log-probs are {difference} apart (median of {count} rows), {ratio} times {name} = {value}: about the"
        " {size} terms of an answer. One is summed over them, the other is their mean.",
        "两个对数概率相差 {difference}（{count} 行的中位数），是 {name} = {value} 的 {ratio} 倍，约等于一个回答的"
        " {size} 项：一个是求和，另一个是平均。",
    ),
    "title:meter": Text("Two meters of one distance that differ", "同一距离的两种量法数值不同"),
    "evidence:meter": Text(
        "The log-probs are {difference} apart (median of {count} rows), {ratio} times {name} = {value}. A sum over"
        " that many tokens or dimensions beside their mean would explain it; how many there are was not logged.",
        "两个对数概率相差 {difference}（{count} 行的中位数），是 {name} = {value} 的 {ratio} 倍。若一个对这么多词元或"
        "维度求和，另一个取平均，就能解释；但它们的数目没有记录。",
    ),
    "cause": Text(
        "The two are scored in different modes (dropout, dropped conditions) or by different precision, summed over"
        " all dimensions and steps in one place and averaged in the other, or the number is minus the weighted KL.",
        "两者打分的模式不同（dropout、条件丢弃）或精度不同；一处对所有维度和步骤求和，另一处取平均；"
        "或该数是加权 KL 的负值。",
    ),
    "prescription": Text(
        "Score both in eval mode with the same noise, mask and precision; before the first update they must be equal."
        " Log them per dimension: a sum over a million of them hides everything.",
        "用 eval 模式、相同的噪声、掩码和精度给两者打分；第一次更新前它们必须相等。"
        "按维度记录：对上百万维求和会掩盖一切。",
    ),
    "principle": Text(
        "KL = mean of log(policy / reference) over the policy's samples >= 0",
        "KL = 策略样本上 log(策略 / 参考) 的均值 >= 0",
    ),
    "unlike": Text("a small negative estimate of a KL near 0", "KL 接近 0 时略为负的估计"),
}
FAR = 5.0
"""Nats: tier of a log-ratio from which something is meant to be done."""
MANY = 1e4
"""More tokens or dimensions than a distance is summed over unsaid."""


@rule(
    stage="scoring",
    order=45,
    certainty="ask",
    experiment="zero_rate",
    needs=("kl/reference|log_prob/reference",),
    explains=("no_learning",),
)
def reference_distance(run: Columns) -> Result:
    """Negative beyond chance in all rows; or log-probs that lie far apart beside a KL that says they do not.

    A log-prob summed over an answer beside a KL per token is a matter of units, and noted as one.
    """
    kl, apart = run.comparable("kl/reference"), differences(run)
    logged = (kl.key, kl.rows, kl.values) if kl else ("", (), ())
    for name, rows, values in (("log_prob/current - log_prob/reference", *apart), logged):
        if len(values) >= 3 and max(values) < 0 and median(values) < -FAR:
            return finding(
                "reference_distance", "warning", rows, name=name, value=median(values), high=max(values),
                count=len(values), changes=(Change("reference_model"),),
            )  # fmt: skip
    rows, values = apart
    if not kl or not values or kl.key.count(" - "):
        return None
    difference = median(values)
    if abs(difference) <= FAR or abs(kl.median) >= abs(difference) / 100:
        return None
    ratio, sizes = abs(difference / kl.median) if kl.median else math.inf, terms(run)
    size = next((n for n in sizes if n / 3 <= ratio <= 3 * n), None)
    summed = size is not None or (not sizes and ratio <= MANY)
    variant = "summed" if size is not None else "meter" if summed else "two"
    return finding(
        "reference_distance", "info" if summed else "warning", rows, variant=variant, name=kl.key, value=kl.median,
        difference=difference, count=len(values), ratio=ratio, size=size or 0.0,
        changes=() if summed else (Change("reference_model"),),
    )  # fmt: skip


def terms(run: Columns) -> list[float]:
    """Over how many tokens or dimensions a log-prob of this run may be summed, where the log or its settings say so;
    and that over beta, as the KL may be logged with its weight."""
    length, said = run.get("length/mean"), number(run.settings.get("dimensions"))
    known = [x for x in (length.median if length else None, said) if x is not None and x > 1]
    beta = number(run.settings.get("beta"))
    return known + ([x / beta for x in known] if beta is not None and 0 < beta < 1 else [])


def differences(run: Columns) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """(rows, log-prob under the policy minus that under the reference), where both are logged."""
    now, then = run.get("log_prob/current"), run.get("log_prob/reference")
    if not now or not then:
        return (), ()
    other = then.at()
    both = [(r, x - other[r]) for r, x in zip(now.rows, now.values) if r in other]
    return tuple(r for r, _ in both), tuple(x for _, x in both)


def fires() -> Case:
    return (healthy(mean_log_prob_current=-833610.0, mean_log_prob_ref=-1031173.0), {})


def silent() -> Case:
    return (healthy(mean_log_prob_current=-1.42, mean_log_prob_ref=-1.43), {})
