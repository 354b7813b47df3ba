"""The trainer waits for samples."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import median
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The trainer waits for samples", "训练端在等样本"),
    "evidence": Text(
        "{share:%} of a step's time is waiting for groups (median), and {ready} groups were finished when it began.",
        "每步有 {share:%} 的时间在等待各组（中位数），步骤开始时已完成 {ready} 组。",
    ),
    "cause": Text("Sampling, tools or rewards are slower than the updates.", "采样、工具或奖励比更新慢。"),
    "prescription": Text(
        "Shorter answers, faster tools and rewards; where tools are waited for, a larger max_staleness lets more"
        " groups wait at once. Nothing is wrong with what is learnt.",
        "缩短回答、加快工具和奖励；若是在等工具，增大 max_staleness 可让更多组同时等待。所学内容没有问题。",
    ),
    "principle": Text("in a pipeline the slower side sets the pace", "流水线的速度由较慢的一侧决定"),
    "unlike": Text("groups thrown away for their age (queue/dropped)", "因过旧而丢弃的组（queue/dropped）"),
}


@rule(stage="facts", order=80, certainty="certain", needs=("queue/finished", "time/wait", "time/step"))
def trainer_waits(run: Columns) -> Result:
    """Over half of a step's seconds in the second half of an asynchronous run: a note, measured by the run itself."""
    waited, step, ready = run.get("time/wait"), run.get("time/step"), run.get("queue/finished")
    if not waited or not step or not ready:
        return None
    whole = step.at()
    shares = [(r, x / whole[r]) for r, x in zip(waited.rows, waited.values) if whole.get(r)]
    late = shares[len(shares) // 2 :]
    if len(late) < 5 or median([x for _, x in late]) <= 0.5:
        return None
    return finding(
        "trainer_waits",
        "info",
        [r for r, _ in late],
        share=median([x for _, x in late]),
        ready=median(ready.values[len(ready) // 2 :]),
        metrics=("time/wait", "queue/finished"),
    )


def fires() -> Case:
    return (healthy(queue__finished=flat(0.0), time__wait=flat(8.0), time__step=flat(10.0)), {})


def silent() -> Case:
    return (healthy(queue__finished=flat(8.0), time__wait=flat(1.0), time__step=flat(10.0)), {})
