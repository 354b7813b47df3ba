"""Groups that took too long were thrown away."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Groups that took too long were thrown away", "耗时过长的组被丢弃"),
    "evidence": Text(
        "In {count} of {of} steps groups were older than the bound when finished: {total} in all.",
        "{of} 步中有 {count} 步出现完成时已超过上限的组：共 {total} 组。",
    ),
    "cause": Text(
        "Some prompts take longer (long answers, slow tools) than max_staleness updates do.",
        "有些提示（长回答、慢工具）耗时超过 max_staleness 次更新。",
    ),
    "prescription": Text(
        "A larger max_staleness, or less time for a tool and for a conversation.",
        "增大 max_staleness，或缩短工具与对话的时限。",
    ),
    "principle": Text(
        "what is left out for its age is not left out at random: long answers are learnt from less",
        "因过旧而丢弃并非随机：长回答被学习得更少",
    ),
    "unlike": Text("groups that a filter leaves out: they were on time", "被过滤器去掉的组：它们是按时完成的"),
}


@rule(stage="groups", order=45, certainty="certain", needs=("queue/dropped",), live="patient")
def dropped_groups(run: Columns) -> Result:
    """Counted by the run itself; a warning where it is so in a tenth of the steps."""
    dropped = run.get("queue/dropped")
    assert dropped
    rows = [r for r, x in zip(dropped.rows, dropped.values) if x > 0]
    if not rows:
        return None
    return finding(
        "dropped_groups",
        "warning" if len(rows) >= 0.1 * len(dropped) else "info",
        rows,
        count=len(rows),
        of=len(dropped),
        total=sum(dropped.values),
        changes=(Change("max_staleness", factor=2.0),),
        metrics=("queue/dropped", "staleness/max"),
    )


def fires() -> Case:
    return (healthy(queue__dropped=flat(2.0)), {})


def silent() -> Case:
    return (healthy(queue__dropped=flat(0.0)), {})
