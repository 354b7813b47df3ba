"""The policy starts almost deterministic."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import progress
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The policy starts almost deterministic", "策略一开始就几乎是确定的"),
    "evidence": Text(
        "Entropy is {start} in the first rows: samples of one prompt will be alike.",
        "最初几行的熵只有 {start}：同一提示的样本会彼此相同。",
    ),
    "cause": Text("An over-tuned start, or a low temperature.", "起点训练过头，或温度太低。"),
    "prescription": Text(
        "An earlier checkpoint, a higher temperature, more diverse prompts.",
        "用更早的检查点、更高的温度、更多样的提示。",
    ),
    "principle": Text("no exploration, no spread in a group", "没有探索，组内就没有差异"),
    "unlike": Text("a short-answer task, where low entropy per token is natural", "短答案任务：每个token的熵天然就低"),
}


@rule(
    stage="entropy",
    order=10,
    certainty="likely",
    experiment="larger_group",
    needs=("entropy",),
    explains=("entropy_collapse",),
)
def low_entropy_start(run: Columns) -> Result:
    entropy = run.get("entropy")
    assert entropy
    if len(entropy) < 3 or not 0 <= entropy.start < 0.1:
        return None
    p = progress(run)
    severity = "warning" if p and p.flat else "info"
    return finding(
        "low_entropy_start",
        severity,
        entropy.rows[: entropy.edge],
        start=entropy.start,
        changes=(Change("temperature", 1.2),),
        metrics=("entropy",),
    )


def fires() -> Case:
    return (healthy(entropy=flat(0.03)), {})


def silent() -> Case:
    return (healthy(entropy=flat(0.3)), {})
