"""Most groups are already solved."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.groups import dead_groups, near_ceiling
from anygrpo.doctor.evidence.progress import rose
from anygrpo.doctor.findings import Finding
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import median
from anygrpo.doctor.synthetic import Case, dull, flat, wiggle
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Most groups are already solved", "大多数组已经全对"),
    "evidence": Text(
        "{share:%} of the groups have no spread in the second half, at a reward of {level}: there is nothing"
        " left to compare.",
        "后半程有 {share:%} 的组没有差异，奖励水平 {level}：没有可比较的了。",
    ),
    "title:level": Text("There is little left to gain", "已经没有多少可提升的"),
    "evidence:level": Text(
        "The reward stands at {level} (never below {low}) from the start. If 1 is the best there is, most groups"
        " are right throughout and have nothing to compare; the log does not count them.",
        "奖励从一开始就是 {level}（从未低于 {low}）。如果 1 是最高分，多数组全对，没有可比较的；日志没有统计组。",
    ),
    "cause": Text("The data have become too easy.", "数据变得太容易。"),
    "prescription": Text(
        "Harder prompts, or stop. The learning rate has nothing to do with it.", "换更难的提示，或停止。与学习率无关。"
    ),
    "principle": Text("a group without spread has no gradient", "没有差异的组没有梯度"),
    "unlike": Text("a saturated format term; a reward that ignores the output", "饱和的格式项；忽略输出的奖励"),
}


@rule(
    stage="groups",
    order=50,
    certainty="likely",
    experiment="larger_group",
    explains=("no_learning", "lr_too_small", "zero_gradient", "advantage_compressed"),
    live="patient",
)
def mastered_groups(run: Columns) -> Result:
    """Dead groups because everything is right. After a gain that is success, and only a note."""
    if found := by_level(run):
        return found
    found = dead_groups(run)
    if not found or not near_ceiling(run):
        return None
    share, now = found
    rows = [r for r, x in zip(share.rows, share.values) if x > 0.5]
    reward = run.get("reward/mean")
    learnt = bool(reward) and median(share.values[:3]) < 0.5 and median(reward.values[:3]) < 0.7 * reward.last
    severity = "info" if rose(run) or learnt else "warning"
    return finding(
        "mastered_groups",
        severity,
        rows,
        share=now,
        level=reward.last if reward else 0.0,
        metrics=("groups/dead", "reward/mean"),
        explains=("dead_term",) if all(s.mean > 0 for s in run.components.values() if s.constant) else (),
    )


def by_level(run: Columns) -> Finding | None:
    """No groups are counted, and a share of right answers stands above nine tenths all the time."""
    reward = run.get("reward/mean")
    if run.get("groups/dead") or not reward or len(reward) < 8:
        return None
    if not (reward.low >= 0.85 and reward.high <= 1.0 and reward.median > 0.9) or rose(run) or reward.constant:
        return None
    return finding(
        "mastered_groups",
        "warning",
        reward.rows,
        variant="level",
        certainty="ask",
        level=reward.median,
        low=reward.low,
        metrics=("reward/mean",),
    )


def fires() -> Case:
    return (dull(reward=wiggle(0.95, 0.02), frac_reward_zero_std=flat(0.8)), {})


def silent() -> Case:
    return (dull(reward=wiggle(0.5, 0.02), frac_reward_zero_std=flat(0.8)), {})
