"""The samples were not scored by what drew them."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, healthy, with_rows
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The samples were not scored by what drew them", "给样本打分的不是采样它们的策略"),
    "evidence": Text(
        "{name} reaches {top}. For samples of the behaviour policy P(log-ratio >= c) <= exp(-c); here c ="
        " {exponent}, in {count} rows: this cannot be drift.",
        "{name} 达到 {top}。对行为策略自己的样本，P(对数概率比 >= c) <= exp(-c)；这里 c = {exponent}，共 {count}"
        " 行：不可能是漂移。",
    ),
    "evidence:unsigned": Text(
        "{name} reaches {top} in {count} rows. Upwards that is impossible for samples of the behaviour policy"
        " (probability at most exp(-{exponent})); the log does not say the sign.",
        "{name} 在 {count} 行里达到 {top}。如果是正向，对行为策略的样本而言不可能（概率不超过 exp(-{exponent})"
        "）；日志没有给出符号。",
    ),
    "evidence:downward": Text(
        "{name} is at most e^-40 in {count} rows: no decision at all has a ratio near 1. The first pass over a"
        " rollout scores it before any update, where every ratio is 1: the scorer is not the sampler. This is"
        " no drift.",
        "{name} 在 {count} 行里不超过 e^-40：没有任何决策的比值接近 1。每次采样后的第一遍打分发生在更新之前，那"
        "时所有比值都是 1：打分者不是采样者。这不是漂移。",
    ),
    "evidence:autopsy": Text(
        "On the behaviour policy's own samples the ratio has mean 1, whatever the two policies are. By Markov's"
        " inequality a mean of {mean} has probability at most 1/M = {chance}. So these samples were not scored"
        " by what drew them: this is a fault of scoring, no drift.",
        "在行为策略自己的样本上，不论两个策略是什么，比值的均值都是 1。由马尔可夫不等式，均值达到 {mean} 的概率"
        "不超过 1/M = {chance}。所以给这些样本打分的不是采样它们的策略：这是打分的故障，不是漂移。",
    ),
    "cause": Text(
        "Dropout on while scoring, another mode or temperature, constants summed over many dimensions, the"
        " ratio taken to the reference policy in place of the behaviour policy.",
        "打分时开着 dropout；模式或温度不同；对很多维求和的常数；比值是对参考策略而不是对行为策略。",
    ),
    "prescription": Text(
        "Score with exactly the settings that sampled: eval mode, same temperature and mask. On the first inner"
        " step old and new log-probs must agree to 1e-3 (bf16: 1e-2). A lower rate or more KL cannot mend it.",
        "用与采样完全相同的设置打分：eval 模式、同样的温度和掩码。第一个内步里新旧对数概率应一致到 1e-3（bf16 "
        "为 1e-2）。降低学习率或加大 KL 都治不了。",
    ),
    "principle": Text(
        "Markov: P(p_other/p_behaviour >= M) <= 1/M for samples of the behaviour policy",
        "马尔可夫：对行为策略的样本，P(p_other/p_behaviour >= M) <= 1/M",
    ),
    "unlike": Text("drift of the policy, which this bound rules out", "策略漂移：这个界限已将其排除"),
}


@rule(
    stage="scoring",
    order=20,
    certainty="certain",
    experiment="frozen_replay",
    needs=("ratio/mean|ratio/max|log_ratio/abs_max|log_ratio/mean",),
    explains=(
        "ratio_mean",
        "ratio_offset",
        "wrong_reference",
        "kl_far",
        "log_ratio_explosion",
        "clip_saturated",
        "no_learning",
        "kl_blowup",
        "lr_too_small",
        "pg_loss_growing",
        "lr_too_large",
    ),
    live="at_once",
)
def markov_bound(run: Columns) -> Result:
    for name, limit, logs in (
        ("ratio/mean", 1e6, False),
        ("ratio/max", math.exp(40), False),
        ("log_ratio/mean", 40, True),
    ):
        series = run.get(name)
        if not series:
            continue
        rows = [r for r, x in zip(series.rows, series.values) if x > limit]
        if rows:
            exponent = series.high if logs else math.log(series.high)
            return finding(
                "markov_bound", "serious", rows, name=series.key, top=series.high, exponent=exponent, count=len(rows)
            )
    wide, largest = run.get("log_ratio/abs_max"), run.get("ratio/max")
    if largest and (never := [r for r, x in zip(largest.rows, largest.values) if x < math.exp(-40)]):
        # The first pass over a rollout scores it before any update: there every ratio is 1, whatever comes after.
        sure = "certain" if run.framework == "anygrpo" else "likely"
        return finding(
            "markov_bound",
            "serious",
            never,
            certainty=sure,
            variant="downward",
            name=largest.key,
            top=largest.high,
            count=len(never),
        )
    if wide and wide.high > 40:
        upward = largest.at() if largest else {}  # a row whose largest ratio is bounded was far off downwards: drift
        rows = [r for r, x in zip(wide.rows, wide.values) if x > 40 and upward.get(r, math.inf) > math.exp(40)]
        if not rows:
            return None
        return finding(
            "markov_bound",
            "serious",
            rows,
            certainty="ask",
            variant="unsigned",
            name=wide.key,
            top=wide.high,
            exponent=wide.high,
            count=len(rows),
        )
    return None


def fires() -> Case:
    return (with_rows(healthy(ratio__mean=1.0), {5: {"ratio/mean": 3e9}}), {})


def silent() -> Case:
    return (healthy(ratio__mean=flat(1.4)), {})
