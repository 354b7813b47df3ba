"""Too short or too noisy to read a trend."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.chains import TREND_RULES
from anygrpo.doctor.evidence.progress import LONG_ENOUGH, held_out_rose, progress
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Too short or too noisy to read a trend", "太短或太吵，看不出趋势"),
    "title:mde": Text("Too noisy to show a gain", "太吵，显示不出收益"),
    "evidence": Text(
        "The reward was logged {count} times ({all} rows in all); a trend needs at least {needed}. What is"
        " certain is said, trends are refused.",
        "奖励只记录了 {count} 次（共 {all} 行）；判断趋势至少要 {needed} 次。确定的事照说，趋势一概不下结论。",
    ),
    "evidence:mde": Text(
        "{count} rows; the reward changed by {gain} from first to last quarter and so few rows could only have"
        " shown {mde} (MDE = 2.8 sd sqrt(2/(n/4))).",
        "共 {count} 行；首尾四分之一之间奖励变化 {gain}，而这么少的行最多只能显示 {mde} 的变化（MDE = 2.8 sd"
        " sqrt(2/(n/4))）。",
    ),
    "cause": Text("A test run, a crash, or sparse logging.", "试跑、崩溃，或记录太稀。"),
    "prescription": Text("Run longer, or log every step, and ask again.", "跑久一点，或每一步都记录，然后再看。"),
    "principle": Text("MDE = 2.8 sd sqrt(2/(n/4))", "MDE = 2.8 sd sqrt(2/(n/4))"),
    "unlike": Text(
        "sparse logging of a long run: it is the number of logged rewards that counts",
        "长训练的稀疏记录：关键是记录了多少次奖励",
    ),
}


@rule(
    stage="log",
    order=40,
    certainty="certain",
    explains=TREND_RULES,
    live="never",
)
def too_short(run: Columns) -> Result:
    """Fewer than 8 rewards; or nothing moved and so few could not have shown a gain worth wanting.

    Of 20 rows or more the second is a note (the verdict is then "cannot tell"): the run may well be fine.
    """
    if run.rows == 0:
        return None
    reward = run.get("reward/mean")
    if reward is None:
        return None
    n = len(reward)
    if n < LONG_ENOUGH:
        return finding("too_short", "warning", reward.rows, count=n, needed=LONG_ENOUGH, all=run.rows)
    p = progress(run)
    if p and p.unclear and not held_out_rose(run):
        weight = "warning" if n < 20 else "info"
        return finding("too_short", weight, reward.rows, variant="mde", count=n, gain=reward.gain, mde=reward.mde)
    return None


def fires() -> Case:
    return (healthy(5), {})


def silent() -> Case:
    return (healthy(12), {})
