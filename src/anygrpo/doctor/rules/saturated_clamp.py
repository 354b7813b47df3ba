"""The ratio sits on its clamp: no gradient."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, healthy, rows
from anygrpo.spoken import Text

CLAMPS = (5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0)
"""Log-ratio clamps seen in code."""


WORDS = {
    "title": Text("The ratio sits on its clamp: no gradient", "比值停在钳制值上：没有梯度"),
    "evidence": Text(
        "{name} = exp({clamp}) = {edge} in {count} of {of} rows. Beyond a clamp the derivative is 0: these rows"
        " teach nothing, and the clamp hides the fault.",
        "{name} = exp({clamp}) = {edge}，占 {of} 行中的 {count} 行。钳制之外导数为"
        " 0：这些行不提供学习信号，而钳制掩盖了故障。",
    ),
    "evidence:mean": Text(
        "The mean ratio is {ratio}; e^{clamp} = {power}. They differ by {off}, less than one float32 step there"
        " ({step}). No ratio can pass a clamp of {clamp} on its logarithm, and a mean that equals the largest"
        " possible value means that every single ratio has it. The derivative of a clamp beyond its edge is 0:"
        " the policy term's gradient is exactly zero in this step.",
        "平均比值是 {ratio}；e^{clamp} = {power}，相差 {off}，不到该处一个 float32 步长（{step}）。对数概率比被钳制"
        "在 {clamp} 时没有比值能超过它；均值等于可能的最大值，说明每一个比值都在那里。钳制之外导数为 0：这一步"
        "策略项的梯度恰好是零。",
    ),
    "evidence:max": Text(
        "The largest ratio is {ratio}; e^{clamp} = {power}, apart by {off}, less than one float32 step"
        " ({step}): a clamp of {clamp} on the log-ratio is in force and was reached.",
        "最大比值是 {ratio}；e^{clamp} = {power}，相差 {off}，不到一个 float32 步长（{step}）：对数概率比上有一个"
        " {clamp} 的钳制，并且已经撞上。",
    ),
    "cause": Text(
        "Log-probs of two different models or modes, or summed over thousands of dimensions.",
        "两个不同模型或模式的对数概率，或对上千维求和。",
    ),
    "prescription": Text(
        "Remove the clamp, print the raw log-ratio, and find why old and new log-probs differ before any update.",
        "去掉钳制，打印原始对数概率比，找出为什么在任何更新之前新旧对数概率就不同。",
    ),
    "principle": Text("d clamp(x)/dx = 0 outside the clamp", "钳制之外，clamp(x) 的导数为 0"),
    "unlike": Text("a large but unclamped ratio", "很大但未被钳制的比值"),
}


@rule(
    stage="scoring",
    order=30,
    certainty="certain",
    experiment="zero_rate",
    needs=("ratio/mean|ratio/max|log_ratio/abs_max",),
    explains=(
        "ratio_mean",
        "ratio_offset",
        "sampler_mismatch",
        "wrong_reference",
        "kl_far",
        "zero_gradient",
        "no_learning",
        "log_ratio_explosion",
        "lr_too_small",
        "clip_saturated",
    ),
    live="at_once",
)
def saturated_clamp(run: Columns) -> Result:
    for name in ("ratio/mean", "ratio/max", "log_ratio/abs_max"):
        series = run.get(name)
        if not series:
            continue
        for clamp in CLAMPS:
            edge = clamp if name.startswith("log") else math.exp(clamp)
            rows = [r for r, x in zip(series.rows, series.values) if abs(x - edge) <= 1e-6 * edge]
            if len(rows) >= 2 or (rows and len(series) == 1):
                return finding(
                    "saturated_clamp",
                    "serious",
                    rows,
                    name=series.key,
                    clamp=clamp,
                    edge=edge,
                    count=len(rows),
                    of=len(series),
                )
    return None


def fires() -> Case:
    return (rows(10, reward=flat(0.3), ratio__mean=math.exp(20)), {})


def silent() -> Case:
    return (healthy(ratio__mean=flat(20000.0)), {})
