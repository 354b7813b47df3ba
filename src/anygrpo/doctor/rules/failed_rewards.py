"""Samples get no reward."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.chains import NOTHING_FLOWS
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, healthy, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Samples get no reward", "样本得不到奖励"),
    "evidence": Text(
        "{share:%} of the samples could not be scored in the last quarter (first quarter {first:%}). They leave"
        " their groups and teach nothing.",
        "最后四分之一里有 {share:%} 的样本无法打分（最初四分之一 {first:%}）。它们离开所在的组，不提供学习信号。",
    ),
    "cause": Text(
        "The reward raises, runs out of time, or returns something that is no finite number.",
        "奖励函数抛出异常、超时，或返回的不是有限的数。",
    ),
    "prescription": Text(
        "Mend the reward: log.txt and samples/ name the reason of each (other frameworks: the reward's own log).",
        "修好奖励函数：log.txt 和 samples/ 写明每个样本的原因（其他框架见奖励函数自己的日志）。",
    ),
    "principle": Text("a sample that could not be scored is not a bad sample", "无法打分的样本不等于差样本"),
    "unlike": Text("wrong answers: those have a reward, a low one", "答错：那些样本有奖励，只是低"),
}


@rule(
    stage="answers",
    order=10,
    certainty="certain",
    needs=("invalid/share",),
    explains=("constant_reward", *NOTHING_FLOWS),
)
def failed_rewards(run: Columns) -> Result:
    """Samples without a reward leave their groups; where many do, the reward is broken and not the policy."""
    share = run.get("invalid/share")
    assert share
    if share.last <= 0.05:
        return None
    return finding(
        "failed_rewards",
        "serious" if share.last > 0.5 else "warning",
        [r for r, x in zip(share.rows, share.values) if x > 0.05],
        metrics=("invalid/share",),
        share=share.last,
        first=share.first,
    )


def fires() -> Case:
    return (healthy(invalid__share=flat(0.6)), {})


def silent() -> Case:
    return (healthy(invalid__share=line(0.1, 0.0)), {})
