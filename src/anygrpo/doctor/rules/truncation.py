"""Answers are cut off."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.chains import NOTHING_FLOWS
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series, paired
from anygrpo.doctor.synthetic import Case, flat, healthy, line

LONGER = (Change("max_length", factor=2.0),)


WORDS = {
    "en": {
        "title": "Answers are cut off",
        "title:note": "Some answers are cut off",
        "evidence": (
            "{share:%} of the samples were cut off in the last quarter (first quarter {first:%}; longest {cap})."
            " What is cut is scored on what is missing."
        ),
        "evidence:eos": (
            "{share:%} of the samples run into the limit of {cap} and none ends by itself (mean terminated length 0)."
        ),
        "evidence:note": "{share:%} of the samples are cut off now, {mean:%} over the whole run.",
        "evidence:cap": "Mean length = longest = {cap} in {count} of {of} rows: everything runs into the limit.",
        "cause": "The limit is too low, or the end token is never produced or not recognised.",
        "prescription": "Allow longer answers, or mask the truncated ones out of the loss.",
        "prescription:eos": (
            "Read one sample: if its text is finished, a second end-of-sequence id is ignored (ask); if not, the"
            " limit is too low."
        ),
        "prescription:note": "Watch it; it matters above .15.",
        "principle": "a cut answer is scored on what is missing",
        "unlike": "an EOS bug: share near 1 though the text is finished",
    },
    "zh": {
        "title": "回答被截断",
        "title:note": "有些回答被截断",
        "evidence": (
            "最后四分之一里有 {share:%} 的样本被截断（最初四分之一 {first:%}；最长 {cap}）。被截断的回答是按缺失的"
            "部分打分的。"
        ),
        "evidence:eos": "{share:%} 的样本撞上 {cap} 的上限，没有一个自己结束（自行结束的平均长度为 0）。",
        "evidence:note": "现在有 {share:%} 的样本被截断，全程平均 {mean:%}。",
        "evidence:cap": "{of} 行中有 {count} 行平均长度 = 最长 = {cap}：全都撞上限。",
        "cause": "上限太低，或结束符从不产生、或没有被认出。",
        "prescription": "放宽长度上限，或把被截断的样本从损失中屏蔽。",
        "prescription:eos": (
            "读一条样本：如果文字已经写完，说明漏认了第二个结束符（需再测）；如果没写完，就是上限太低。"
        ),
        "prescription:note": "留意即可；超过 .15 才要紧。",
        "principle": "被截断的回答是按缺失的部分打分的",
        "unlike": "结束符错误：文字已写完而比例接近 1",
    },
}


@rule(
    stage="answers",
    order=20,
    certainty="likely",
    needs=("truncated/share|length/max",),
    explains=("constant_reward", "dead_term", "aux_only_gain", *NOTHING_FLOWS, "length_explosion", "late_collapse"),
)
def truncation(run: Columns) -> Result:
    """The share of cut-off samples in the last quarter: above .15 it decides what is rewarded; above .05 a note."""
    share, longest, length = run.get("truncated/share"), run.get("length/max"), run.comparable("length/mean")
    if not share:
        return all_at_the_cap(longest, length)
    metrics = ("truncated/share", "length/mean")
    if share.last <= 0.15:
        if share.mean <= 0.05:
            return None
        return finding(
            "truncation", "info", share.rows, variant="note", metrics=metrics, share=share.last, mean=share.mean
        )
    cap = longest.high if longest else length.high if length else 0.0
    ended = run.get("length/terminated")
    never = share.last > 0.9 and ended is not None and ended.last < 0.5
    return finding(
        "truncation",
        "serious" if share.last > 0.5 else "warning",
        [r for r, x in zip(share.rows, share.values) if x > 0.15],
        variant="eos" if never else "",
        changes=LONGER,
        metrics=metrics,
        share=share.last,
        first=share.first,
        cap=cap,
    )


def all_at_the_cap(longest: Series | None, length: Series | None) -> Result:
    """Where no share was logged: mean = longest = the same number in most rows."""
    if not longest or not length or len(length) < 4 or longest.high < 8:
        return None
    cap = longest.high
    rows = [r for r, top, middle in paired(longest, length) if top >= cap and middle >= 0.995 * cap]
    if len(rows) < 0.5 * len(length):
        return None
    return finding(
        "truncation", "warning", rows, variant="cap", changes=LONGER, count=len(rows), of=len(length), cap=cap
    )


def fires() -> Case:
    return (healthy(completions__clipped_ratio=flat(0.6)), {})


def silent() -> Case:
    return (healthy(completions__clipped_ratio=line(0.3, 0.01)), {})
