"""Steps too large from the start."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.chains import COLLAPSES
from anygrpo.doctor.evidence.progress import progress
from anygrpo.doctor.findings import Change, Finding
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import mean
from anygrpo.doctor.synthetic import Case, healthy, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Steps too large from the start", "从一开始步子就太大"),
    "evidence": Text(
        "In the first third KL went {early}, {half}, {whole}: faster than linear, and the reward fell by {gain}"
        " (MDE {mde}); also changed: {signs}.",
        "前三分之一里 KL 依次为 {early}、{half}、{whole}：快于线性，而奖励变化 {gain}（MDE"
        " {mde}）；同时突变的还有：{signs}。",
    ),
    "title:leap": Text("The first updates are leaps", "最初几次更新就是大跳"),
    "evidence:leap": Text(
        "KL to the start is {early} in the first row and {whole} at most three rows later, while the entropy went"
        " from {before} to {after}; then KL stays around {half}. So few updates of a sound run move a policy by"
        " hundredths.",
        "第一行对起点的 KL 为 {early}，最多三行之后已是 {whole}，熵从 {before} 变到 {after}；"
        "之后 KL 停在 {half} 左右。"
        "正常训练里这么几次更新只移动百分之几。",
    ),
    "cause": Text("Learning rate.", "学习率。"),
    "prescription": Text("Learning rate divided by 5 to 10.", "学习率除以 5 到 10。"),
    "principle": Text("KL faster than linear in the first steps", "最初几步 KL 快于线性"),
    "unlike": Text(
        "a sampler mismatch, which is there before the first update", "采样端与训练端不一致：那在第一次更新之前就有"
    ),
}


@rule(
    stage="drift",
    order=30,
    certainty="likely",
    experiment="two_rates",
    needs=("kl/reference", "reward/mean"),
    trend=True,
    explains=("kl_far", "reward_fell", *COLLAPSES),
)
def lr_too_large(run: Columns) -> Result:
    """In the first third KL at twice the rows is over 4 times as large and over .1, and the reward has fallen."""
    if found := leap(run):
        return found
    p, kl = progress(run), run.comparable("kl/reference")
    if not p or not kl or len(kl) < 24 or not p.fell:
        return None
    third = len(kl) // 3
    early = mean(kl.values[: max(2, third // 4)])
    half, whole = mean(kl.values[third // 4 : third // 2]), mean(kl.values[third // 2 : third])
    if whole < 0.1 or (whole < 4 * max(half, 1e-9) and half < 4 * max(early, 1e-9)):
        return None
    signs = [
        s.key
        for n in ("entropy", "length/mean")
        if (s := run.get(n)) and s.first > 0 and not 0.5 <= s.last / s.first <= 2
    ]
    return finding(
        "lr_too_large",
        "serious",
        kl.rows[:third],
        early=early,
        half=half,
        whole=whole,
        gain=p.reward.gain,
        mde=p.reward.mde,
        signs=", ".join(signs) or "-",
        changes=(Change("learning_rate", factor=0.2),),
        metrics=("kl/reference", "reward/mean"),
    )


def leap(run: Columns) -> Finding | None:
    """In the first four rows, one a step, KL goes from nothing to over .5, the entropy to below half, and both stay."""
    kl, entropy = run.comparable("kl/reference"), run.get("entropy")
    if not kl or not entropy or len(kl) < 8 or len(entropy) < 8 or run.steps_per_row not in (None, 1):
        return None
    far = max(kl.values[1:4])
    if kl.values[0] > 0.05 or far < 0.5 or kl.median < 0.25 or entropy.values[0] < 0.2:
        return None
    if max(min(entropy.values[1:4]), entropy.median) > entropy.values[0] / 2:
        return None
    return finding(
        "lr_too_large",
        "warning",
        kl.rows[:4],
        variant="leap",
        early=kl.values[0],
        whole=far,
        half=kl.median,
        before=entropy.values[0],
        after=min(entropy.values[1:4]),
        changes=(Change("learning_rate", factor=0.1),),
        metrics=("kl/reference", "entropy"),
        explains=("constant_reward", "starved_groups", "mastered_groups", "grad_spikes", "kl_blowup"),
    )


def fires() -> Case:
    return (healthy(90, reward=lambda t: 0.6 * math.exp(-4 * t), kl=lambda t: 0.001 + 60 * t**3), {})


def silent() -> Case:
    return (healthy(90, reward=line(0.7, 0.3), kl=line(0.001, 0.3)), {})
