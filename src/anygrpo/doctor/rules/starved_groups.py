"""Most groups teach nothing."""

from __future__ import annotations

from anygrpo.doctor.canonical import label
from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.groups import dead_groups, near_ceiling
from anygrpo.doctor.evidence.progress import rose
from anygrpo.doctor.findings import Change, Finding
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import mean
from anygrpo.doctor.synthetic import Case, dull, flat
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Most groups teach nothing", "大多数组教不了任何东西"),
    "evidence": Text(
        "{share:%} of the groups have no spread in the second half ({key}), at a reward of {level}: neither"
        " solved nor solvable, no gradient.",
        "后半程有 {share:%} 的组没有差异（{key}），奖励水平 {level}：既没解决也解不了，没有梯度。",
    ),
    "evidence:averaged": Text(
        "{queries} groups, advantage std {std}. Pooled over all samples the std could not be below {least},"
        " even with one live group; so the logged number is a mean over groups, {std} = (L/{queries}) x 1 with"
        " std 1 in a live group and 0 in a dead one. L = {queries} x {std} = {live} (printing allows {low} to"
        " {high}): about {whole} live groups, {share:%} of all. Every other group had equal rewards and no"
        " gradient.",
        "{queries} 个组，优势标准差 {std}。如果是对所有样本合并计算，哪怕只有一个有信号的组，也不会低于"
        " {least}；所以记录的是各组的平均，{std} = (L/{queries}) x 1（有信号的组内标准差为 1，无效组为 0）。L ="
        " {queries} x {std} = {live}（打印精度允许 {low} 到 {high}）：约 {whole} 个有信号的组，占"
        " {share:%}。其余的组奖励全相同，没有梯度。",
    ),
    "evidence:pooled": Text(
        "{queries} groups, pooled advantage std {std}: L = {live} live groups ({share:%}), since the pooled"
        " variance is the share of live groups.",
        "{queries} 个组，合并的优势标准差 {std}：有信号的组 L = {live}（{share:%}），因为合并方差就是"
        "有信号的组的比例。",
    ),
    "title:filter": Text("A filter takes the signal away", "过滤器拿走了信号"),
    "evidence:filter": Text(
        "{before:%} of the groups have spread, {after:%} after the filter {filter}: it is the filter that makes"
        " the groups homogeneous.",
        "有差异的组占 {before:%}，经过过滤器 {filter} 后只剩 {after:%}：是过滤器让组内变得一样。",
    ),
    "cause:filter": Text(
        "A filter that keeps the samples most alike: top-k by reward keeps the best, and the best are equal.",
        "过滤器留下的恰是最相像的样本：按奖励取前 k 个，最好的那些都一样。",
    ),
    "prescription:filter": Text(
        "Remove the filter {filter}, or choose what it keeps for contrast (the best and the worst).",
        "去掉过滤器 {filter}，或改为保留对比（最好的与最差的）。",
    ),
    "cause": Text(
        "Prompts far too hard, or each prompt always right or always wrong at this group size.",
        "提示太难，或在这个组大小下每个提示不是全对就是全错。",
    ),
    "prescription": Text(
        "Larger groups, a pass-rate filter, dynamic sampling, or a shaped reward for failures.",
        "加大组；按通过率过滤；动态采样；给失败的样本一个有层次的奖励。",
    ),
    "principle": Text("a group without spread has no gradient", "没有差异的组没有梯度"),
    "unlike": Text(
        "truncation; an estimate from the mean reward (p^G + (1-p)^G is wrong by a factor of two)",
        "截断；由平均奖励估算（p^G + (1-p)^G 会差一倍）",
    ),
}


@rule(
    stage="groups",
    order=40,
    certainty="likely",
    experiment="larger_group",
    explains=("no_learning", "zero_gradient", "lr_too_small", "advantage_compressed"),
    live="patient",
)
def starved_groups(run: Columns) -> Result:
    """Groups without spread: of themselves, or because a filter took it from them."""
    if found := filtered_away(run):
        return found
    found = dead_groups(run)
    if not found or near_ceiling(run):
        return None
    share, now = found
    reward = run.get("reward/mean")
    if share.name == "grad_norm/total" and share.low >= 1 and reward and reward.noise > 0.005:
        return None  # no gradient ever, and rewards that differ: not for want of spread
    rows = [r for r, x in zip(share.rows, share.values) if x > 0.5]
    return finding(
        "starved_groups",
        "info" if rose(run) else "warning",
        rows,
        share=now,
        key=label(share.key),
        level=reward.last if reward else 0.0,
        changes=(Change("group_size", factor=2.0), Change("dynamic_sampling", "true")),
        metrics=("groups/dead", "reward/mean"),
    )


def filtered_away(run: Columns) -> Finding | None:
    """A filter after which five times fewer groups have spread, in any quarter of the log: counted, so certain. Serious
    where it is so at the end, or in half of the run."""
    dead = run.get("groups/dead")
    if not dead:
        return None
    for name, series in run.family("groups/live_after/").items():
        at, after = dead.at(), series.at()
        both = [r for r in series.rows if r in at]
        cuts = [both[i * len(both) // 4 : (i + 1) * len(both) // 4] for i in range(4)]
        starved = [rows for rows in cuts if rows and _starves([1 - at[r] for r in rows], [after[r] for r in rows])]
        if not starved:
            continue
        rows = [r for cut in starved for r in cut]
        return finding(
            "starved_groups",
            "serious" if len(starved) > 1 or starved[-1] is cuts[-1] else "warning",
            rows,
            variant="filter",
            certainty="certain",
            filter=name,
            before=mean([1 - at[r] for r in rows]),
            after=mean([after[r] for r in rows]),
            metrics=("groups/dead", f"groups/live_after/{name}"),
        )
    return None


def _starves(before: list[float], after: list[float]) -> bool:
    return mean(before) > 0.05 and mean(after) < mean(before) / 5


def fires() -> Case:
    return (dull(reward=flat(0.1), frac_reward_zero_std=flat(0.8)), {})


def silent() -> Case:
    return (dull(reward=flat(0.05), frac_reward_zero_std=flat(0.3)), {})
