"""Log-ratios leave the safe range."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.chains import COLLAPSES
from anygrpo.doctor.evidence.groups import dead_share
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

TIERS = ((20.0, "stop", 1e-7, 2.0), (10.0, "high", 5e-7, 1.0), (5.0, "raised", 1e-6, 0.5))
TIERS_CLIP = 0.2
"""The clip range of the decisions that the tiers are made for."""

WORDS = {
    "title": Text("Log-ratios leave the safe range", "对数概率比离开安全范围"),
    "evidence:raised": Text(
        "max |log-ratio| = {worst} ({count} of {of} rows above 5).",
        "最大 |对数概率比| = {worst}（{of} 行中 {count} 行超过 5）。",
    ),
    "evidence:high": Text(
        "max |log-ratio| = {worst} ({count} of {of} rows above 10).",
        "最大 |对数概率比| = {worst}（{of} 行中 {count} 行超过 10）。",
    ),
    "evidence:stop": Text(
        "max |log-ratio| = {worst} ({count} of {of} rows above 20).",
        "最大 |对数概率比| = {worst}（{of} 行中 {count} 行超过 20）。",
    ),
    "evidence:raised_mean": Text(
        "mean ratios in {count} of {of} rows need a log-ratio above 5 ({worst} at least).",
        "{of} 行中 {count} 行的平均比值要求对数概率比超过 5（至少有一个 {worst}）。",
    ),
    "evidence:high_mean": Text(
        "mean ratios in {count} of {of} rows need a log-ratio above 10 ({worst} at least).",
        "{of} 行中 {count} 行的平均比值要求对数概率比超过 10（至少有一个 {worst}）。",
    ),
    "evidence:stop_mean": Text(
        "mean ratios in {count} of {of} rows need a log-ratio above 20 ({worst} at least).",
        "{of} 行中 {count} 行的平均比值要求对数概率比超过 20（至少有一个 {worst}）。",
    ),
    "evidence:raised_unit": Text(
        "max |log-ratio| = {worst} x {unit} ({count} of {of} rows above 5 x {unit}).",
        "最大 |对数概率比| = {worst} × {unit}（{of} 行中 {count} 行超过 5 × {unit}）。",
    ),
    "evidence:high_unit": Text(
        "max |log-ratio| = {worst} x {unit} ({count} of {of} rows above 10 x {unit}).",
        "最大 |对数概率比| = {worst} × {unit}（{of} 行中 {count} 行超过 10 × {unit}）。",
    ),
    "evidence:stop_unit": Text(
        "max |log-ratio| = {worst} x {unit} ({count} of {of} rows above 20 x {unit}).",
        "最大 |对数概率比| = {worst} × {unit}（{of} 行中 {count} 行超过 20 × {unit}）。",
    ),
    "evidence": Text("max |log-ratio| = {worst}.", "最大 |对数概率比| = {worst}。"),
    "cause": Text(
        "Steps too large, or samples too old. First exclude a scoring fault and sums over many dimensions.",
        "步子太大，或样本太旧。先排除打分故障和跨维求和。",
    ),
    "prescription": Text("Lower the rate and raise the KL weight.", "降低学习率，加大 KL 权重。"),
    "prescription:stop": Text(
        "Stop, go back to the last healthy checkpoint, and go on slower.", "停下，回到最后一个健康的检查点，放慢再走。"
    ),
    "prescription:stop_mean": Text(
        "Stop, go back to the last healthy checkpoint, and go on slower.", "停下，回到最后一个健康的检查点，放慢再走。"
    ),
    "prescription:stop_unit": Text(
        "Stop, go back to the last healthy checkpoint, and go on slower.", "停下，回到最后一个健康的检查点，放慢再走。"
    ),
    "principle": Text(
        "max |log-ratio| per decision, to the behaviour policy: 5, 10, 20, made for a clip of 0.2",
        "每个决策、对行为策略的最大 |对数概率比|：5、10、20，以裁剪 0.2 为准",
    ),
    "unlike": Text(
        "summed log-probs of long samples: the tiers are per decision, to the behaviour policy",
        "长样本求和的对数概率：分级是按每个决策、对行为策略而言",
    ),
}


@rule(
    stage="drift",
    order=10,
    certainty="likely",
    experiment="zero_rate",
    needs=("log_ratio/abs_max|ratio/max|ratio/mean",),
    explains=("clip_saturated", "grad_spikes", "kl_far", "sign_inverted", *COLLAPSES),
    live="at_once",
)
def log_ratio_explosion(run: Columns) -> Result:
    """Where only the mean ratio is logged: the largest is not below it, so its logarithm bounds it from below. Where
    the log says that the policy's log-ratios are of a smaller kind (`clip/own`), the tiers shrink with it."""
    wide, top = run.get("log_ratio/abs_max"), run.get("ratio/max")
    source = wide or top or run.comparable("ratio/mean")
    if not source:
        return None
    sizes = source.values if wide else tuple(math.log(max(x, 1e-300)) for x in source.values)
    own = run.get("clip/own")
    unit = min(1.0, own.values[-1] / TIERS_CLIP) if own and wide else 1.0
    sizes = tuple(x / unit for x in sizes)
    worst = max(sizes)
    out = next((r for r, x in zip(source.rows, sizes) if x > TIERS[-1][0]), 0)
    for limit, tier, rate, beta in TIERS:
        rows = [r for r, x in zip(source.rows, sizes) if x > limit]
        if rows:
            changes = [Change("learning_rate", rate), Change("beta", beta)] + (
                [Change("clip", 0.1)] if tier == "high" else []
            )
            return finding(
                "log_ratio_explosion",
                "warning" if tier == "raised" else "serious",
                rows,
                variant=f"{tier}_unit" if unit < 1 else tier if wide or top else f"{tier}_mean",
                worst=worst,
                unit=unit,
                count=len(rows),
                of=len(sizes),
                changes=tuple(changes),
                metrics=("log_ratio/abs_max", "ratio/max", "ratio/mean"),
                explains=("starved_groups", "mastered_groups") if before_groups_died(run, out) else (),
            )
    return None


def before_groups_died(run: Columns, row: int) -> bool:
    """Whether groups still had spread when the ratios first left."""
    dead = dead_share(run)
    first = next((r for r, x in zip(dead.rows, dead.values) if x > 0.5), None) if dead else None
    return first is not None and row < first


def fires() -> Case:
    return (healthy(log_ratio__abs_max=flat(12.0)), {})


def silent() -> Case:
    return (healthy(log_ratio__abs_max=flat(3.0)), {})
