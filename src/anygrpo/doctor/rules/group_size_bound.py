"""The group size, read off the advantages."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.advantages import bound, group_from_bound, largest_advantage
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series
from anygrpo.doctor.synthetic import Case, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The group size, read off the advantages", "从优势读出的组大小"),
    "title:above": Text("The advantages break the bound of their normaliser", "优势超出了归一化方式的界"),
    "evidence": Text(
        "The largest |advantage| is {top} = (G-1)/sqrt(G) for G = {group}, reached in {count} rows: group std,"
        " unbiased.",
        "最大 |优势| 是 {top} = (G-1)/sqrt(G)，G = {group}，共 {count} 行达到：组内无偏标准差。",
    ),
    "evidence:above": Text(
        "The largest |advantage| is {top}; with a group of {group} and its own unbiased std it cannot pass {limit}.",
        "最大 |优势| 是 {top}；组大小为 {group}、用组内无偏标准差时不可能超过 {limit}。",
    ),
    "evidence:loss": Text(
        "With every ratio at the clamp R, samples with A > 0 are clipped to a negligible 1 + eps and the others"
        " give R |A|: policy loss / R = mean of |A| over A < 0, taken over all samples = {share}. A group of G"
        " = {group} with {convention} std gives exactly that ({wins} of {group} above the mean): G = {group},"
        " {convention} convention. Larger groups reach this value only with other reward patterns ({others}"
        " sizes up to 64).",
        "所有比值都在钳制值 R 上时，A > 0 的样本被裁剪到可以忽略的 1 + eps，其余的贡献 R |A|：策略损失 / R ="
        " 所有样本中 A < 0 部分的 |A| 均值 = {share}。组大小 G = {group}、{convention}"
        " 标准差恰好给出这个值（{group} 个中 {wins} 个高于均值）：G = {group}，标准差为"
        " {convention}（unbiased：除以 n − 1，无偏；biased：除以 n，有偏）。"
        "更大的组只有在别的奖励组合下才会碰到它（64 以内有 {others} 个）。",
    ),
    "evidence:averaged": Text(
        "The logged maximum {top} is averaged the same way: {top} / {std} = {per} is the largest z-score of a"
        " typical live group, which takes a group of at least {group}.",
        "记录的最大值 {top} 也是这样平均的：{top} / {std} = {per}，就是一个典型的有信号的组里最大的 z 分数，这至少需"
        "要大小为 {group} 的组。",
    ),
    "evidence:maximum": Text(
        "The largest advantage {top} = (G-1)/sqrt(G) for G = {group}: group std, unbiased.",
        "最大优势 {top} = (G-1)/sqrt(G)，G = {group}：组内无偏标准差。",
    ),
    "cause": Text("A bound of any z-score.", "这是任何 z 分数的界。"),
    "prescription": Text("", ""),
    "prescription:above": Text(
        "The normaliser is not what it claims: another axis, a biased std, or another group size.",
        "归一化与其名称不符：轴不同、标准差有偏，或组大小不同。",
    ),
    "principle": Text("|z| <= (G-1)/sqrt(G), Samuelson", "|z| <= (G-1)/sqrt(G)（Samuelson）"),
    "unlike": Text("rank or centred advantages, which have other bounds", "排名归一化优势或中心化优势：它们的界不同"),
}


@rule(
    stage="facts",
    order=10,
    certainty="certain",
    needs=("advantage/max|advantage/abs_max",),
)
def group_size_bound(run: Columns) -> Result:
    largest = largest_advantage(run)
    assert largest
    top = largest.high
    sizes = compared_in_a_group(run, largest)
    sized = [(x, sizes[r], r) for r, x in zip(largest.rows, largest.values) if r in sizes]
    above = [found for found in sized if found[0] > bound(found[1]) * 1.001]
    stated = str(run.settings.get("normaliser", "")).lower()
    if stated and stated not in GROUP_ZSCORES:
        return None  # running, batch, EMA and rank normalisers have other bounds
    sure = "certain" if stated else "likely"
    if above and run.settings.get("scale_rewards", True) not in (False, "none", "batch"):
        worst, group, _ = max(above)
        return finding(
            "group_size_bound",
            "warning" if stated or "group_size" in run.settings else "info",  # batch normalisers pass it by design
            [r for _, _, r in above],
            certainty=sure,
            variant="above",
            top=worst,
            limit=bound(group),
            group=group,
        )
    inferred = group_from_bound(top)
    on_it = [r for r, x in zip(largest.rows, largest.values) if inferred and abs(x - top) <= 2e-3 * top]
    if inferred is None or len(on_it) < max(2, len(largest) // 20):
        return None
    same = sum(abs(x - top) <= 1e-5 * top for x in largest.values)  # chance comes near a bound, not to one point of it
    sure = sure if same >= 3 else "likely"
    return finding("group_size_bound", "info", on_it, certainty=sure, top=top, group=inferred, count=len(on_it))


GROUP_ZSCORES = ("zscore", "z-score", "group", "std", "group_std", "grpo", "dapo")
"""Normalisers that the bound holds for."""


def compared_in_a_group(run: Columns, rows: Series) -> dict[int, int]:
    """G by row: as logged (stored candidates and filters make it differ from the setting), else the setting's."""
    logged, setting = run.get("groups/size"), run.settings.get("group_size")
    if logged:
        return {r: int(x) for r, x in zip(logged.rows, logged.values) if x > 1}
    return dict.fromkeys(rows.rows, setting) if isinstance(setting, int) and setting > 1 else {}


def fires() -> Case:
    return (healthy(critic__advantages__max=2.475, critic__advantages__min=-2.0), {})


def silent() -> Case:
    return (healthy(critic__advantages__max=2.0, critic__advantages__min=-1.3), {"group_size": 8})
