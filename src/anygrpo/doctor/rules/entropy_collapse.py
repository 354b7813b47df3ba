"""Entropy collapsed and nothing was gained since."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.groups import dead_share, near_ceiling
from anygrpo.doctor.evidence.progress import outcomes, progress
from anygrpo.doctor.evidence.sampling import clip_high
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series, mean
from anygrpo.doctor.synthetic import Case, dull, evaluated, flat, healthy, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Entropy collapsed and nothing was gained since", "熵坍缩，而且之后再无收益"),
    "evidence": Text(
        "Entropy fell from {start} to {end}, below a tenth by row {row}; no gain after that, and dead groups"
        " went from {dead_first:%} to {dead_last:%}.",
        "熵从 {start} 降到 {end}，在第 {row} 行低于十分之一；之后没有收益，无差异的组从 {dead_first:%} 增到"
        " {dead_last:%}。",
    ),
    "evidence:alone": Text(
        "Entropy fell from {start} to {end}, below a tenth by row {row}; the reward gained nothing after that. How"
        " many groups are without spread was not logged: log it, it decides.",
        "熵从 {start} 降到 {end}，在第 {row} 行低于十分之一；之后奖励没有收益。"
        "无差异的组有多少没有记录：请记录，由它判定。",
    ),
    "cause": Text(
        "Upper clip too narrow for rare good answers, rate too high.", "裁剪上界对少见的好答案太窄；学习率太大。"
    ),
    "prescription": Text(
        "Upper clip .28, temperature, KL-Cov or Clip-Cov.", "裁剪上界取 .28；调温度；KL-Cov 或 Clip-Cov。"
    ),
    "principle": Text("sharpening that buys nothing", "没有换来收益的尖锐化"),
    "unlike": Text("healthy decay (.58 to .13 with validation doubling)", "健康的下降（.58 到 .13，同时验证翻倍）"),
}


@rule(
    stage="entropy",
    order=20,
    certainty="likely",
    experiment="two_rates",
    needs=("entropy", "reward/mean"),
    trend=True,
    explains=("no_learning", "decision_collapse"),
)
def entropy_collapse(run: Columns) -> Result:
    """Below a tenth of its start (or .03), no gain since it was halved, and more and more groups without spread.

    A policy that learns a task with one right answer ends without entropy: where the reward rose while the entropy
    fell, or stands at its ceiling, the sharpening bought what it should.
    """
    entropy, p = run.get("entropy"), progress(run)
    assert entropy
    if not p or len(entropy) < 16 or entropy.start < 0.1:
        return None
    floor = max(0.1 * entropy.start, 0.03)
    smooth = entropy.smooth()
    down = next((i for i, x in enumerate(smooth) if x < floor), None)
    if down is None or entropy.end >= floor:
        return None
    halved = next(i for i, x in enumerate(smooth) if x < entropy.start / 2)
    if bought(p.reward, entropy.rows[halved]) or bought(p.reward, entropy.rows[down]):
        return None
    if not p.fell and any(bought(s, entropy.rows[halved]) for s in outcomes(run).values()):
        return None
    dead = dead_share(run)
    if dead is None or dead.name == "grad_norm/total":  # nobody counted them
        return alone(run, entropy, entropy.rows[down])
    if dead.gain <= 0 or (p.rose and near_ceiling(run)):
        return None
    early = mean(dead.values[: dead.edge])
    rows = [r for r, x in zip(entropy.rows, entropy.values) if x < floor]
    changes = (*clip_high(run, 0.28), Change("temperature", 1.0))
    return finding(
        "entropy_collapse",
        "warning",
        rows,
        start=entropy.start,
        end=entropy.end,
        row=entropy.rows[down],
        dead_first=dead.first,
        dead_last=dead.last,
        changes=changes,
        metrics=("entropy", "groups/dead", "reward/mean"),
        explains=("starved_groups", "mastered_groups", "validation_drop") if early < 0.5 else (),
    )


def alone(run: Columns, entropy: Series, row: int) -> Result:
    """Groups were not counted: below a hundredth of the start, with a reward that is not at its ceiling."""
    if entropy.end >= 0.01 * entropy.start or near_ceiling(run):
        return None
    return finding(
        "entropy_collapse",
        "warning",
        [r for r, x in zip(entropy.rows, entropy.values) if x < 0.1 * entropy.start],
        variant="alone",
        certainty="ask",
        start=entropy.start,
        end=entropy.end,
        row=row,
        changes=(*clip_high(run, 0.28), Change("temperature", 1.0)),
        metrics=("entropy", "reward/mean"),
    )


def bought(s: Series, row: int) -> bool:
    """Whether a measure rose beyond its noise in the rows from `row` on: last quarter against first."""
    after = [x for r, x in zip(s.rows, s.values) if r >= row]
    q = max(1, len(after) // 4)
    gain = mean(after[-q:]) - mean(after[:q]) if after else 0.0
    return len(after) >= 4 and gain > 2 * s.noise * math.sqrt(2 * s.inertia / q)


def fires() -> Case:
    return (
        dull(entropy=lambda t: 0.6 * math.exp(-8 * t), frac_reward_zero_std=line(0.1, 0.5), reward=flat(0.4)),
        {},
    )


def silent() -> Case:
    return (evaluated(healthy(entropy=line(0.58, 0.13)), eval_accuracy=line(0.2, 0.4)), {})
