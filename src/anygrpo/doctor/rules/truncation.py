"""Answers are cut off."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import of_episodes, progress
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series, paired
from anygrpo.doctor.synthetic import Case, flat, healthy, line
from anygrpo.spoken import Text

LONGER = (Change("max_length", factor=2.0),)


WORDS = {
    "title": Text("Answers are cut off", "回答被截断"),
    "title:note": Text("Some answers are cut off", "有些回答被截断"),
    "evidence": Text(
        "{share:%} of the samples were cut off in the last quarter (first quarter {first:%}; longest {cap})."
        " What is cut is scored on what is missing.",
        "最后四分之一里有 {share:%} 的样本被截断（最初四分之一 {first:%}；最长 {cap}）。被截断的回答是按缺失的"
        "部分打分的。",
    ),
    "evidence:eos": Text(
        "{share:%} of the samples run into the limit of {cap} and none ends by itself (mean terminated length 0).",
        "{share:%} 的样本撞上 {cap} 的上限，没有一个自己结束（自行结束的平均长度为 0）。",
    ),
    "evidence:note": Text(
        "{share:%} of the samples are cut off now, {mean:%} over the whole run.",
        "现在有 {share:%} 的样本被截断，全程平均 {mean:%}。",
    ),
    "title:meter": Text("The share of cut-off answers counts something else", "“截断率”统计的是别的东西"),
    "evidence:meter": Text(
        "{share:%} are called cut off, but answers that were cut are all as long as the limit, and the longest"
        " answers of those rows are not one number, or the share times the longest passes the mean length ({why})."
        " It is a share of answers near the batch's longest, say. Not judged.",
        "记录说 {share:%} 被截断；但被截断的回答都应与上限一样长，而这些行里最长的回答并不是同一个数，或截断率乘以"
        "最长长度超过了平均长度（{why}）。它可能是接近本批最长回答的比例。不作判断。",
    ),
    "prescription:meter": Text("", ""),
    "evidence:cap": Text(
        "Mean length = longest = {cap} in {count} of {of} rows: everything runs into the limit.",
        "{of} 行中有 {count} 行平均长度 = 最长 = {cap}：全都撞上限。",
    ),
    "evidence:mean": Text(
        "The mean length is exactly {cap} in {count} of {of} rows and never above: there every answer runs into the"
        " limit.",
        "{of} 行中有 {count} 行平均长度恰为 {cap}，且从不超过：这些行的回答全都撞上限。",
    ),
    "cause": Text(
        "The limit is too low, or the end token is never produced or not recognised.",
        "上限太低，或结束符从不产生、或没有被认出。",
    ),
    "prescription": Text(
        "Allow longer answers, or mask the truncated ones out of the loss.",
        "放宽长度上限，或把被截断的样本从损失中屏蔽。",
    ),
    "prescription:eos": Text(
        "Read one sample: if its text is finished, a second end-of-sequence id is ignored (ask); if not, the"
        " limit is too low.",
        "读一条样本：如果文字已经写完，说明漏认了第二个结束符（需再测）；如果没写完，就是上限太低。",
    ),
    "prescription:note": Text("Watch it; it matters above .15.", "留意即可；超过 .15 才要紧。"),
    "principle": Text("a cut answer is scored on what is missing", "被截断的回答是按缺失的部分打分的"),
    "unlike": Text("an EOS bug: share near 1 though the text is finished", "结束符错误：文字已写完而比例接近 1"),
}


@rule(
    stage="answers",
    order=20,
    certainty="likely",
    experiment="cap_doubled",
    needs=("truncated/share|length/max|length/mean",),
    explains=(
        "constant_reward",
        "dead_term",
        "aux_only_gain",
        "starved_groups",
        "advantage_compressed",
        "zero_gradient",
        "no_learning",
        "length_explosion",
    ),
)
def truncation(run: Columns) -> Result:
    """The share of cut-off samples in the last quarter: above .15 it decides what is rewarded; above .05 a note."""
    share, longest, length = run.get("truncated/share"), run.get("length/max"), run.comparable("length/mean")
    if not share:
        return all_at_the_cap(longest, length)
    metrics = ("truncated/share", "length/mean")
    if share.last > 0.05 and longest is not None and (why := meter(share, longest, length)):
        rows = [r for r, x in zip(share.rows, share.values) if x > 0]
        return finding("truncation", "info", rows, variant="meter", share=share.last, why=why, metrics=metrics)
    if share.last <= 0.15:
        if share.mean <= 0.05:
            return None
        return finding(
            "truncation", "info", share.rows, variant="note", metrics=metrics, share=share.last, mean=share.mean
        )
    if besides(run, share):
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


def besides(run: Columns, share: Series) -> bool:
    """Whether the reward fell by far more than the answers newly cut can have taken: something else is wrong first.

    Per answer cut a reward loses at most its range; of the fall at most a third may be theirs.
    """
    p, best, worst = progress(run), run.get("reward/max"), run.get("reward/min")
    if not p or not p.fell or share.last > 0.5:
        return False
    reach = best.high - worst.low if best and worst else p.reward.high - min(p.reward.low, 0.0)
    return 3 * max(0.0, share.last - share.first) * reach < -p.reward.gain


def meter(share: Series, longest: Series, length: Series | None) -> str:
    """How the log itself shows that its share of cut-off answers counts something else, or "".

    Cut-off answers are as long as the limit. So in rows of single steps (whole numbers) the longest answer is the same
    wherever one was cut; and the share times the longest cannot exceed the mean length.
    """
    cut = [(top, x) for _, x, top in paired(share, longest) if x > 0]
    whole = all(top == round(top) for top, _ in cut)
    if len(cut) >= 4 and whole and max(cut)[0] > 1.02 * min(cut)[0]:
        return f"{min(cut)[0]:.0f}-{max(cut)[0]:.0f}"
    middle = length.at() if length else {}
    over = [r for r, x, top in paired(share, longest) if r in middle and x * top > 1.02 * middle[r]]
    return f"{len(over)} x" if cut and len(over) > 0.5 * len(cut) else ""


def all_at_the_cap(longest: Series | None, length: Series | None) -> Result:
    """Where no share was logged: mean = longest = the same number in most rows."""
    if not length or of_episodes(length.key):  # an episode that ends with its clock is no answer cut off
        return None
    if not longest:
        return mean_at_its_ceiling(length)
    if len(length) < 4 or longest.high < 8:
        return None
    cap = longest.high
    rows = [r for r, top, middle in paired(longest, length) if top >= cap and middle >= 0.995 * cap]
    if len(rows) < 0.5 * len(length):
        return None
    return finding(
        "truncation", "warning", rows, variant="cap", changes=LONGER, count=len(rows), of=len(length), cap=cap
    )


def mean_at_its_ceiling(length: Series) -> Result:
    """Where not even the longest was logged: a mean that varies, yet is exactly its maximum in a third of the rows.

    The mean of a row is the limit only if every answer of it is as long. Answers of one fixed length never vary.
    """
    if len(length) < 20 or length.high < 32 or length.high != round(length.high):
        return None
    cap = length.high
    rows = [r for r, x in zip(length.rows, length.values) if x == cap]
    late = length.values[-length.quarter_size :]
    if len(rows) < len(length) / 3 or late.count(cap) < len(late) / 4 or sum(x < 0.98 * cap for x in length.values) < 3:
        return None
    return finding(
        "truncation", "warning", rows, variant="mean", changes=LONGER, count=len(rows), of=len(length), cap=cap
    )


def fires() -> Case:
    return (healthy(completions__clipped_ratio=flat(0.6)), {})


def silent() -> Case:
    return (healthy(completions__clipped_ratio=line(0.3, 0.01)), {})
