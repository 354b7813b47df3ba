"""These cannot be plain rank advantages."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, dull, flat

WORDS = {
    "en": {
        "title": "These cannot be plain rank advantages",
        "evidence": (
            "Rank-normalised advantages have std sqrt((n+1)/(3(n-1))) >= {least}; the largest logged is {highest}."
        ),
        "evidence:autopsy": (
            "Plain rank advantages (group size {n}) have std sqrt((n+1)/(3(n-1))) >= {least} in every group; {std}"
            " cannot come from them. Ties averaged in dead groups, a later scale, another axis or a floor must act:"
            " look there before tuning anything."
        ),
        "cause": "A later scale, another axis, a floor, or most groups constant.",
        "prescription": "Print the advantages of one group right after normalising, and again before the loss.",
        "principle": "std of n distinct ranks scaled to [-1, 1]: sqrt((n+1)/(3(n-1)))",
        "unlike": "z-scores with a floor",
    },
    "zh": {
        "title": "这不可能是单纯的名次优势",
        "evidence": "名次归一化的优势标准差为 sqrt((n+1)/(3(n-1))) >= {least}；日志里最大的是 {highest}。",
        "evidence:autopsy": (
            "单纯名次优势（组大小 {n}）在每个组里标准差都是 sqrt((n+1)/(3(n-1))) >= {least}；{std} 不可能由它得来。"
            "必有无效组里的并列取平均、之后的缩放、另一个轴或下限在起作用：先查这些，再谈调参。"
        ),
        "cause": "之后的缩放、另一个轴、下限，或大多数组是常数。",
        "prescription": "在归一化之后和进入损失之前各打印一组优势。",
        "principle": "缩放到 [-1, 1] 的 n 个不同名次，标准差为 sqrt((n+1)/(3(n-1)))",
        "unlike": "带下限的 z 分数",
    },
}


@rule(
    stage="advantages",
    order=30,
    certainty="certain",
    needs=("advantage/std",),
)
def rank_std(run: Columns) -> Result:
    spread = run.get("advantage/std")
    normaliser = str(run.settings.get("normaliser", ""))
    if not spread or "rank" not in normaliser or spread.high >= 0.577 * 0.98:
        return None
    return finding("rank_std", "serious", spread.rows, highest=spread.high, least=0.577)


def fires() -> Case:
    return (dull(advantage__std=flat(0.3)), {"normaliser": "rank"})


def silent() -> Case:
    return (dull(advantage__std=flat(0.7)), {"normaliser": "rank"})
