"""The reward of a gated network fell further than its gates can move it."""

from __future__ import annotations

from typing import Any

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.chains import ROLL_BACK
from anygrpo.doctor.evidence.progress import progress
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, Value, flat, healthy, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The policy's gradient ruins the network around its gates", "策略梯度破坏了门控之外的网络"),
    "evidence": Text(
        "The reward fell from {first} to {last}: {ratio} times the spread inside a group at the start ({spread})."
        " No choice among such draws costs that much, so what lies between gates and output has moved.",
        "奖励从 {first} 降到 {last}：是开始时组内标准差（{spread}）的 {ratio} 倍。在这样的抽样之间选择，"
        "代价不会这么大，因此是门控与输出之间的权重变了。",
    ),
    "cause": Text(
        "Gates whose gradient goes on into the features they read, with no loss that holds the body.",
        "门控的梯度继续传入其读取的特征，而没有损失约束主体。",
    ),
    "prescription": Text(
        'Go back, then features = "detached" (or gate_features), or train the heads alone (policy.train), or hold'
        " the body by lambda_supervised = 1. `anygrpo check` measures it before a run (body).",
        '退回，然后用 features = "detached"（或 gate_features），或只训练门控头（policy.train），或用 '
        "lambda_supervised = 1 约束主体。`anygrpo check` 可在训练前测出（body）。",
    ),
    "principle": Text(
        "with the rest fixed, a reward moves within what its draws reach", "其余固定时，奖励只能在抽样所及的范围内变化"
    ),
    "unlike": Text(
        "prompts that became harder: their draws differ as little, but held-out quality stays",
        "提示变难：抽样差异同样小，但留出质量不变",
    ),
}
FAR = 20.0
"""The worst of any number of draws that one meets lies within some five standard deviations of their mean."""


@rule(
    stage="aim",
    order=54,
    certainty="likely",
    experiment="then_and_now",
    needs=("reward/mean", "reward/std_within"),
    trend=True,
    explains=("reward_fell", "no_learning", "validation_drop", "entropy_collapse"),
    replaces=("reward_fell",),
)
def body_moved(run: Columns) -> Result:
    """Of policies with gates alone: elsewhere a choice of one decision may ruin all that follows."""
    p, spread = progress(run), run.get("reward/std_within")
    if not p or not p.fell or spread is None or not any("/gate_spread/" in name for name in run.columns):
        return None
    start = max(spread.values[: max(1, len(spread) // 4)])
    if start <= 0 or -p.reward.gain < FAR * start:
        return None
    return finding(
        "body_moved",
        "serious",
        p.reward.rows[-p.reward.quarter_size :],
        first=p.reward.first,
        last=p.reward.last,
        ratio=-p.reward.gain / start,
        spread=start,
        changes=(*ROLL_BACK, Change("lambda_supervised", 1.0)),
        metrics=("reward/mean", "reward/std_within"),
    )


def _gated(reward: Value) -> Case:
    more: dict[str, Any] = {"reward": reward, "reward_std": flat(7e-4), "restoration__gate_spread__fre1": flat(0.15)}
    return (healthy(**more), {})


def fires() -> Case:
    return _gated(line(0.45, 0.05))


def silent() -> Case:
    return _gated(line(0.45, 0.44))
