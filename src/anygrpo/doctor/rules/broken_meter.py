"""A column that cannot count what its name says."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.miscounts import SHOWN, known_here
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("A column does not count what its name says", "某列统计的不是其名称所说的"),
    "evidence": Text(
        "{keys} cannot be what it is called, in {count} rows.", "{keys} 有 {count} 行不可能是其名称所说的。"
    ),
    "evidence:share": Text(
        "{keys} is called a share and lies outside 0 to 1 in {count} rows.",
        "{keys} 名为份额，却有 {count} 行在 0 到 1 之外。",
    ),
    "evidence:order": Text(
        "{keys}: a mean beyond its own extreme in {count} rows; they are not of the same samples.",
        "{keys}：有 {count} 行平均值超出自己的极值；二者不是同一批样本。",
    ),
    "evidence:spread": Text(
        "{keys}: a standard deviation above (max - min) / sqrt(2) in {count} rows, which no sample has.",
        "{keys}：有 {count} 行标准差超过 (最大 - 最小) / sqrt(2)，任何样本都做不到。",
    ),
    "evidence:part": Text(
        "{keys}: a part is larger than the whole in {count} rows.", "{keys}：有 {count} 行部分大于整体。"
    ),
    "evidence:norm": Text(
        "{keys} is called a norm and is negative in {count} rows.", "{keys} 名为范数，却有 {count} 行为负。"
    ),
    "evidence:varying_cap": Text(
        "{keys} counts answers as long as the longest of their batch, not those that were cut: answers are cut at"
        " one length, and the longest varies ({shown}) in rows where it is above 0.",
        "{keys} 统计的是与本批最长回答一样长的，而不是被截断的：截断只发生在一个长度上，"
        "而在它大于 0 的行中最长值在变（{shown}）。",
    ),
    "evidence:silent_cap": Text(
        "{keys} is 0 in all rows, and the longest answer is the same in most: {shown}. Unless answers end"
        " there by themselves, they were cut, and it does not count them.",
        "{keys} 各行都是 0，而多数行的最长回答相同：{shown}。除非回答自己就在那里结束，它们被截断了却没有被统计。",
    ),
    "evidence:product": Text(
        "{keys} is the ratio of whole answers: a token's log-prob differs by little, the product over its tokens by"
        " much ({shown}).",
        "{keys} 是整条回答的比值：单个 token 的对数概率相差很小，连乘之后相差很大（{shown}）。",
    ),
    "cause": Text(
        "Percents, a sum over dimensions, another set of samples, or a meter with a fault.",
        "百分数、对维度求和、另一批样本，或仪表本身有错。",
    ),
    "prescription": Text(
        "Shares outside 0 to 1 are read by no rule here. Name the right column with --map, or mend the meter.",
        "0 到 1 之外的份额在此不被任何规则采用。用 --map 指定正确的列，或修正仪表。",
    ),
    "principle": Text("a share is in [0, 1], a mean between its extremes", "份额在 [0, 1] 内，平均值在极值之间"),
    "unlike": Text("a run with that fault: it is the meter that is wrong", "运行真有该问题：错的是仪表"),
}


@rule(stage="log", order=60, certainty="certain")
def broken_meter(run: Columns) -> Result:
    """Laws that no data can break; and meters known to be wrong, where this log proves it. Always a note."""
    found = [
        finding("broken_meter", "info", b.rows, variant=b.law, keys=", ".join(b.keys), count=len(b.rows))
        for b in run.broken
    ]
    for known in known_here(run):
        if known.shown and (shown := SHOWN[known.shown](run)):
            sure = "ask" if known.shown == "silent_cap" else "certain"
            found.append(
                finding("broken_meter", "info", variant=known.shown, certainty=sure, keys=known.column, shown=shown)
            )
    return found


def fires() -> Case:
    return (healthy(actor__clip_fraction=flat(31.0)), {})


def silent() -> Case:
    return (healthy(actor__clip_fraction=flat(0.31)), {})
