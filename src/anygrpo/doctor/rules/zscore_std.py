"""These z-scores are not of size 1."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, dull, flat
from anygrpo.spoken import Text

WORDS = {
    "title": Text("These z-scores are not of size 1", "这些 z 分数的大小不是 1"),
    "evidence": Text(
        "Their std is {spread}: with live groups it is 1, so about {share:%} of the groups are alive.",
        "标准差是 {spread}：组都有效时应为 1，所以约 {share:%} 的组是有效的。",
    ),
    "evidence:floor": Text(
        "Their std is {spread} with a floor of {floor}: the rewards themselves spread only {reward}.",
        "标准差是 {spread}，下限为 {floor}：奖励自身的差异只有 {reward}。",
    ),
    "evidence:autopsy": Text(
        "Z-scores of a live group have std 1; {std} means that most groups are constant or that something"
        " scales afterwards.",
        "有信号的组的 z 分数标准差为 1；{std} 说明多数组是常数，或之后还有缩放。",
    ),
    "evidence:autopsy_floor": Text(
        "Z-scores have std 1. With a floor of {floor} a std of {std} means that the rewards spread only {std} x"
        " {floor} = {reward} - if all groups are alive.",
        "z 分数的标准差为 1。下限为 {floor} 时，标准差 {std} 说明奖励的差异只有 {std} x {floor} ="
        " {reward}（如果所有组都有效）。",
    ),
    "cause": Text("A floor above the spread, or constant groups.", "下限高于差异，或组是常数。"),
    "prescription": Text(
        "Log the share of live groups, and set the floor below the reward's own spread.",
        "记录有信号的组的比例，并把下限设到奖励自身差异以下。",
    ),
    "principle": Text(
        "std of z-scores is 1 but for a floor or constant groups", "除非有下限或常数组，z 分数的标准差为 1"
    ),
    "unlike": Text("un-normalised advantages", "未归一化的优势"),
}


@rule(
    stage="advantages",
    order=40,
    certainty="certain",
    needs=("advantage/std",),
)
def zscore_std(run: Columns) -> Result:
    spread = run.get("advantage/std")
    normaliser = str(run.settings.get("normaliser", ""))
    if not spread or normaliser not in ("zscore", "z-score", "group", "std", "group_std") or spread.high >= 0.1:
        return None
    floor = run.settings.get("std_floor")
    if isinstance(floor, int | float) and floor > 0:
        implied = spread.median * float(floor)
        return finding(
            "zscore_std", "warning", spread.rows, variant="floor", spread=spread.median, floor=floor, reward=implied
        )
    share = spread.median**2
    return finding("zscore_std", "warning", spread.rows, spread=spread.median, share=share)


def fires() -> Case:
    return (dull(advantage__std=flat(0.006)), {"normaliser": "zscore", "std_floor": 0.1})


def silent() -> Case:
    return (dull(advantage__std=flat(0.9)), {"normaliser": "zscore"})
