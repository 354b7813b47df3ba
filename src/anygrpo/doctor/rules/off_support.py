"""An offline run whose policy chooses what its file never scored."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

LEAST = 0.05
"""Probability of stored selections below which a file says next to nothing of a policy (as `select evaluate`)."""
ROWS = 20

WORDS = {
    "title": Text("The policy chooses what was never scored", "策略选择了从未评分的内容"),
    "evidence": Text(
        "In the last quarter the policy makes a selection that the file holds with a probability of {coverage}: what "
        "its other picks earn is unknown, whatever offline/value says.",
        "在最后四分之一，策略做出文件中已有选择的概率为 {coverage}：其余选择得到多少并不知道，"
        "无论 offline/value 是多少。",
    ),
    "cause": Text(
        "Too few stored selections for the size of the pools, or a policy that has been driven far from what the "
        "file's writers chose.",
        "相对候选池的大小，存好的选择太少；或策略已远离文件作者所选的内容。",
    ),
    "prescription": Text(
        "Score its picks (`anygrpo select plan RUN`), go on online against a scorer (task.live), or stay nearer by a "
        "KL weight or a smaller rate.",
        "为它的选择评分（`anygrpo select plan RUN`），用评分器在线继续（task.live），"
        "或用 KL 权重、较小的学习率使其靠近。",
    ),
    "principle": Text(
        "a file of scores says nothing of a selection that it does not hold", "评分文件对它没有的选择一无所知"
    ),
    "unlike": Text(
        "a run at its start, where nearly all probability lies outside of any file",
        "刚开始的运行，几乎所有概率都在文件之外",
    ),
}


@rule(stage="answers", order=57, certainty="certain", needs=("offline/coverage",))
def off_support(run: Columns) -> Result:
    """The probability of the file's selections under the policy, mean of the last quarter of 20 rows or more."""
    coverage = run.get("offline/coverage")
    if coverage is None or len(coverage) < ROWS or coverage.last >= LEAST:
        return None
    late = coverage.rows[-coverage.quarter_size :]
    return finding("off_support", "warning", late, metrics=("offline/coverage",), coverage=coverage.last)


def fires() -> Case:
    return (healthy(40, offline__coverage=flat(0.02)), {})


def silent() -> Case:
    return (healthy(40, offline__coverage=flat(0.4)), {})
