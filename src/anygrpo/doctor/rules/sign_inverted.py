"""The run learns, away from the reward."""

from __future__ import annotations

import math
from itertools import pairwise

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.chains import COLLAPSES
from anygrpo.doctor.evidence.groups import dead_share
from anygrpo.doctor.evidence.progress import blocks, progress
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, healthy, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The run learns, away from the reward", "训练在学，但方向相反"),
    "evidence": Text(
        "The reward falls steadily from {first} to {last} (p = {p}) while KL grows to {kl}.",
        "奖励从 {first} 稳步降到 {last}（p = {p}），同时 KL 增长到 {kl}。",
    ),
    "cause": Text(
        "A sign in the loss, the advantage or the reward; a cost used as a reward.",
        "损失、优势或奖励的符号反了；把代价当成了奖励。",
    ),
    "prescription": Text(
        "Unit-test the reward: a gold answer must score above a wrong one; then the sign of one advantage"
        " against its log-prob's change.",
        "给奖励写单元测试：标准答案必须高于错误答案；再看一个优势的符号与其对数概率的变化是否一致。",
    ),
    "principle": Text("learning, away from the reward", "在学，只是背离奖励"),
    "unlike": Text("an exploration dip, which comes back", "探索期的下降：它会回来"),
}


@rule(
    stage="scoring",
    order=70,
    certainty="likely",
    experiment="gold_and_wrong",
    needs=("reward/mean", "kl/reference"),
    trend=True,
    explains=("reward_fell", *COLLAPSES),
)
def sign_inverted(run: Columns) -> Result:
    """The reward falls steadily from the start (p < .01) while KL grows (p < .01): it learns, the wrong way."""
    p, kl = progress(run), run.comparable("kl/reference")
    if not p or not kl or not p.fell or len(p.reward) < 16 or kl.gain <= kl.mde:
        return None
    parts = blocks(p.reward, 4)
    if not all(b < a or 0 <= b <= 0.1 * parts[0] for a, b in pairwise(parts)):  # down, or down already
        return None
    middle = blocks(kl, 8)[3:5]
    if parts[0] - parts[1] < 0.2 * (parts[0] - parts[3]) or max(middle) < 0.1 * kl.end:
        return None  # a fall that gathers speed: something broke on the way, nothing was upside down from the start
    dead = dead_share(run)
    return finding(
        "sign_inverted",
        "serious",
        p.reward.rows,
        certainty="ask",
        p=p.reward.p,
        first=p.reward.first,
        last=p.reward.last,
        kl=kl.last,
        metrics=("reward/mean", "kl/reference"),
        explains=("starved_groups",) if dead and dead.gain > dead.mde else (),
    )


def fires() -> Case:
    return (healthy(reward=line(0.7, 0.2)), {})


def silent() -> Case:
    return (healthy(reward=lambda t: 0.5 - 0.3 * math.sin(math.pi * t)), {})
