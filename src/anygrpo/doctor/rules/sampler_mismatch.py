"""Sampler and trainer disagree on the same tokens."""

from __future__ import annotations

from collections.abc import Callable

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.distances import both, leads_nowhere
from anygrpo.doctor.findings import Change, Finding
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import mean
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

MISMATCHED = (
    "log_ratio_explosion",
    "kl_blowup",
    "kl_far",
    "no_learning",
    "late_collapse",
    "clip_saturated",
    "lr_too_large",
)
LIMITS: dict[str, Callable[[float], bool]] = {
    "mismatch/ratio_mean": lambda x: not 0.5 <= x <= 2,
    "mismatch/ess": lambda x: 0 <= x < 0.3,
    "kl/rollout": lambda x: abs(x) > 0.1,
}
"""Outside what the same policy gives on the same tokens."""


BEYOND = 0.01
"""KL to the policy that sampled, per decision, that rounding does not reach."""
OURS = {"scoring_dropout": (True, "false"), "behaviour": ("first", "current")}
"""Settings of ours that make scoring another policy than sampling: (the value that does, the cure)."""


WORDS = {
    "title": Text("Sampler and trainer disagree on the same tokens", "采样端与训练端对同样的token意见不一"),
    "evidence": Text(
        "{name} is {value} ({count} of {of} rows outside what the same policy gives).",
        "{name} 为 {value}（{of} 行中有 {count} 行超出同一策略应有的范围）。",
    ),
    "title:product": Text("The logged ratio is a product over tokens", "记录的比值是所有 token 的乘积"),
    "evidence:product": Text(
        "{name} is {value} while one token's log-prob differs by {small} only: the ratio multiplies all"
        " tokens of an"
        " answer, and small differences add up. That is rounding, not another policy.",
        "{name} 为 {value}，而单个 token 的对数概率只差 {small}：这个比值把整条回答的 token 相乘，小的差"
        "别累积起来。"
        "这是舍入误差，不是另一个策略。",
    ),
    "prescription:product": Text("", ""),
    "title:one_update": Text("The policy that is scored is not the one that sampled", "被打分的策略不是采样的策略"),
    "evidence:one_update": Text(
        "Each rollout gets one update, so its samples are scored by the weights that drew them: every ratio is 1."
        " Yet {name} is {first} in the first row and {value} in the median, and {count} of {of} rows are above"
        " 0.01.",
        "每个 rollout 只更新一次，样本由抽取它们的同一组权重打分，比值应恒为 1。但 {name} 在第一行就是 {first}，"
        "中位数 {value}，{of} 行中有 {count} 行超过 0.01。",
    ),
    "cause:one_update": Text(
        "Dropout or another mode while scoring, another temperature, mask or support than in sampling, rounding in"
        " another precision.",
        "打分时开着 dropout 或模式不同；温度、掩码或支撑集与采样时不同；精度不同。",
    ),
    "prescription:one_update": Text(
        "`anygrpo doctor RUN --confirm` scores samples at learning rate 0 and tells which. Learning rate and beta"
        " mend nothing here.",
        "`anygrpo doctor RUN --confirm` 会以学习率 0 打分并指出是哪一个。调学习率或 beta 都无济于事。",
    ),
    "title:nowhere": Text("The policy that is scored is not the one that sampled", "被打分的策略不是采样的策略"),
    "evidence:nowhere": Text(
        "{name} is {first} in the first row already, and the KL to the start {start} there and {later} four rows"
        " later. Updates that move a policy so far from what sampled would take it as far from its start.",
        "{name} 在第一行就是 {first}，而到起点的 KL 在那里是 {start}，四行之后是 {later}。"
        "更新若真让策略离采样策略这么远，也会让它离起点一样远。",
    ),
    "evidence:first": Text(
        "{name} is {value} in the first row: no policy is that far from its own start.",
        "{name} 在第一行就是 {value}：没有策略会离自己的起点这么远。",
    ),
    "cause": Text(
        "Temperature, top-p or top-k applied on one side only, constrained decoding, raw log-probs, bf16"
        " against fp8, MoE routing.",
        "温度、top-p 或 top-k 只用在一侧；约束解码；未处理的对数概率；bf16 对 fp8；MoE 路由。",
    ),
    "prescription": Text(
        "Same support and same temperature on both sides; then a truncated importance weight with a cap of 2 to 3.",
        "两侧用同样的支撑集和温度；再加截断的重要性权重，上限 2 到 3。",
    ),
    "principle": Text(
        "E[p_trainer/p_sampler] = 1 on the sampler's own samples", "在采样者自己的样本上 E[p_trainer/p_sampler] = 1"
    ),
    "unlike": Text(
        "staleness (it grows with the updates); long sequences under product ratios",
        "样本陈旧（会随更新增长）；长序列的连乘比值",
    ),
}


@rule(
    stage="scoring",
    order=50,
    certainty="likely",
    experiment="zero_rate",
    needs=("mismatch/ratio_mean|mismatch/ess|kl/rollout|kl/reference|kl/behaviour",),
    explains=("wrong_reference", "entropy_explosion", *MISMATCHED),
)
def sampler_mismatch(run: Columns) -> Result:
    """Importance ratio outside [.5, 2], ESS below .3, |KL(rollout, train)| above .1, first-row KL in the hundreds."""
    for name, off in LIMITS.items():
        series = run.comparable(name)
        if not series:
            continue
        rows = [r for r, x in zip(series.rows, series.values) if off(x)]
        if name == "mismatch/ratio_mean" and rows and (small := per_token(run)) is not None:
            return finding(
                "sampler_mismatch", "info", rows, variant="product", name=series.key, value=series.last, small=small
            )
        if len(rows) > 0.2 * len(series) and off(mean(series.tail(0.5))):
            cures = (Change("temperature", 1.0), Change("top_p", 1.0), Change("importance_cap", 2.0))
            return finding(
                "sampler_mismatch",
                "serious",
                rows,
                name=series.key,
                value=series.last,
                count=len(rows),
                of=len(series),
                changes=cures,
            )
    if found := not_alone(run) or nowhere(run):
        return found
    kl = run.comparable("kl/reference")
    if kl and kl.values[0] > 100:
        return finding(
            "sampler_mismatch",
            "serious",
            kl.rows[:1],
            variant="first",
            name=kl.key,
            value=kl.values[0],
            metrics=("kl/reference",),
        )
    return None


def not_alone(run: Columns) -> Finding | None:
    """One update a rollout: every ratio is 1. A KL to what sampled, from the first row on, is a fault."""
    own = run.comparable("kl/behaviour")
    if run.settings.get("on_policy") is not True or not own or own.values[0] <= BEYOND or own.median <= BEYOND:
        return None
    rows = [r for r, x in zip(own.rows, own.values) if x > BEYOND]
    return finding(
        "sampler_mismatch",
        "serious",
        rows,
        variant="one_update",
        name=own.key,
        first=own.values[0],
        value=own.median,
        count=len(rows),
        of=len(own),
        changes=tuple(Change(name, cure) for name, (bad, cure) in OURS.items() if run.settings.get(name) == bad),
        metrics=("kl/behaviour", "ratio/mean"),
        explains=("truncation", "clip_one_sided", "reward_fell"),
    )


def nowhere(run: Columns) -> Finding | None:
    """A distance from the sampler that is there from the first row on and leads nowhere."""
    if run.settings.get("updates_per_batch", 1) > 1 or not leads_nowhere(run):
        return None
    rows = both(run)[:5]
    own = run.comparable("kl/behaviour")
    return finding(
        "sampler_mismatch",
        "warning",
        [r for r, _, _ in rows],
        variant="nowhere",
        name=own.key if own else "",
        first=rows[0][1],
        start=rows[0][2],
        later=rows[-1][2],
        changes=(Change("temperature", 1.0),),
        metrics=("kl/behaviour", "kl/reference"),
        explains=("truncation", "clip_one_sided", "reward_fell"),
    )


def per_token(run: Columns) -> float | None:
    """The mean difference of a token's log-probs where it is small: a ratio far from 1 is then a product of many."""
    gap, length = run.get("mismatch/log_prob"), run.get("length/mean")
    if not gap or len(gap) < 1 or abs(gap.median) > 0.02:
        return None
    return gap.median if length is None or length.median > 50 else None


def fires() -> Case:
    return (healthy(rollout_corr__rollout_is_mean=flat(0.2)), {})


def silent() -> Case:
    return (healthy(rollout_corr__rollout_is_mean=flat(0.98)), {})
