"""The policy is far from its reference."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The policy is far from its reference", "策略离参考模型很远"),
    "evidence": Text(
        "KL to the reference is {kl}: if it is per token, a sampled token is e^{kl} = {factor} times likelier than"
        " under the reference, on average of the logarithm. No healthy run was seen above 5.",
        "与参考模型的 KL 是 {kl}：若按 token 计，采样出的 token 平均（取对数）比参考模型下的概率高"
        " e^{kl} = {factor} 倍。"
        "健康的训练里没有见过超过 5 的。",
    ),
    "cause": Text(
        "The policy has left the language, the reference is another model, or the KL is a sum over tokens or an"
        " exponential estimate (k3) with a few huge terms.",
        "策略已不像语言，参考模型是另一个模型，或 KL 是对 token 求和、或是少数巨大项主导的指数估计（k3）。",
    ),
    "prescription": Text(
        "Read three samples; look at the KL of the first step: it must be 0.", "读三条样本；看第一步的 KL：应为 0。"
    ),
    "principle": Text(
        "KL = mean of log(policy / reference) over the policy's samples", "KL = 策略样本上 log(策略 / 参考) 的均值"
    ),
    "unlike": Text("a KL summed over a sequence", "对整条序列求和的 KL"),
}


@rule(
    stage="drift",
    order=5,
    certainty="ask",
    experiment="zero_rate",
    needs=("kl/reference",),
    explains=("no_learning",),
)
def kl_far(run: Columns) -> Result:
    """A level, not a trend: what one row can say."""
    kl = run.comparable("kl/reference")
    if not kl or kl.last <= 5:
        return None
    rows = [r for r, x in zip(kl.rows, kl.values) if x > 5]
    factor = math.exp(min(kl.last, 700.0))
    return finding("kl_far", "warning", rows, kl=kl.last, factor=factor, changes=(Change("reference_model"),))


def fires() -> Case:
    return (healthy(3, kl=flat(12.0)), {})


def silent() -> Case:
    return (healthy(kl=flat(2.0)), {})
