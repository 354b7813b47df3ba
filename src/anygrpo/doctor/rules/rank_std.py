"""These cannot be plain rank advantages."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, dull, flat
from anygrpo.spoken import Text

WORDS = {
    "title": Text("These cannot be plain rank advantages", "这不可能是单纯的排名归一化优势"),
    "evidence": Text(
        "Rank-normalised advantages have std sqrt((n+1)/(3(n-1))) >= {least}; the largest logged is {highest}.",
        "名次归一化的优势标准差为 sqrt((n+1)/(3(n-1))) >= {least}；日志里最大的是 {highest}。",
    ),
    "title:autopsy": Text(
        "So small a std of rank advantages needs dead groups or a later scale",
        "这么小的标准差，排名归一化优势必有无效组或之后的缩放",
    ),
    "evidence:autopsy": Text(
        "Ranks in groups of {n}, ties averaged, have std >= 1/sqrt(n-1) = {least} in every group with any spread; {std}"
        " was logged. Then at least {dead:%} of the groups have no spread, or a later scale, another axis or a floor"
        " acts: look there before tuning anything.",
        "每组 {n} 个样本、并列取平均时，有差异的组里名次的标准差 >= 1/sqrt(n-1) = {least}；记录的是 {std}。因此至少"
        " {dead:%} 的组没有差异，或有之后的缩放、另一个轴或下限在起作用：先查这些，再谈调参。",
    ),
    "title:ask": Text(
        "Rank advantages with so small a std need ties or dead groups", "这么小的标准差，排名归一化优势需要并列或无效组"
    ),
    "evidence:ask": Text(
        "Ranks without ties have std >= {least}; the log's largest is {highest}. Equal rewards and"
        " groups without spread"
        " lower it; how many there are was not logged.",
        "没有并列时，名次的标准差 ≥ {least}；日志里最大的是 {highest}。相同的奖励和没有差异的组会让它变小"
        "；有多少没有记录。",
    ),
    "cause": Text(
        "A later scale, another axis, a floor, or most groups constant.",
        "之后的缩放、另一个轴、下限，或大多数组是常数。",
    ),
    "prescription": Text(
        "Print the advantages of one group right after normalising, and again before the loss.",
        "在归一化之后和进入损失之前各打印一组优势。",
    ),
    "principle": Text(
        "std of n distinct ranks scaled to [-1, 1]: sqrt((n+1)/(3(n-1)))",
        "缩放到 [-1, 1] 的 n 个不同名次，标准差为 sqrt((n+1)/(3(n-1)))",
    ),
    "unlike": Text("z-scores with a floor", "带下限的 z 分数"),
}


@rule(
    stage="advantages",
    order=30,
    certainty="certain",
    needs=("advantage/std",),
)
def rank_std(run: Columns) -> Result:
    """The least std that ranks of one group can have, and what dead groups take from it.

    Without ties sqrt((n + 1) / (3 (n - 1))). With ties averaged the least is that of one sample against n - 1 equal
    ones, 1 / sqrt(n - 1) without the correction for n. A share d of dead groups leaves sqrt(1 - d) of a pooled std and
    1 - d of an averaged one. Certain only where n and d are logged or set; else it is to be asked.
    """
    spread, dead = run.get("advantage/std"), run.get("groups/dead")
    normaliser = str(run.settings.get("normaliser", ""))
    if not spread or "rank" not in normaliser:
        return None
    n = int(run.get("groups/size").low) if run.get("groups/size") else run.settings.get("group_size")  # type: ignore[union-attr]
    if isinstance(n, int) and n > 1 and dead:
        share = dead.at()
        tied = 1 / math.sqrt(n - 1)
        below = [(r, x, tied * (1 - share[r])) for r, x in zip(spread.rows, spread.values) if share.get(r, 1.0) < 1]
        low = [r for r, x, least in below if x < 0.98 * least]
        if below and len(low) == len(below):
            return finding("rank_std", "serious", low, highest=spread.high, least=min(x for _, _, x in below))
        return None
    if spread.high >= 0.577 * 0.98 or dead is not None:
        return None
    return finding("rank_std", "warning", spread.rows, certainty="ask", variant="ask", highest=spread.high, least=0.577)


def fires() -> Case:
    return (dull(advantage__std=flat(0.1)), {"normaliser": "rank", "group_size": 8})


def silent() -> Case:
    ties = dull(advantage__std=flat(0.4), frac_reward_zero_std=flat(0.3))  # rewards of 0 and 1
    return (ties, {"normaliser": "rank", "group_size": 8})
