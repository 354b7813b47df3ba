"""Answers shrank to a fraction."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import held_out_rose, of_episodes, progress
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, evaluated, healthy, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Answers shrank to a fraction", "回答缩短到一小截"),
    "title:earned": Text("Answers became shorter, and earn it", "回答变短，而且更好"),
    "evidence": Text(
        "Mean length went from {first} to {last} ({ratio:%} of its start; reward {gain}) and no held-out result"
        " confirms that it still works.",
        "平均长度从 {first} 到 {last}（起点的 {ratio:%}；奖励变化 {gain}），没有留出评测证明它仍然有效。",
    ),
    "evidence:earned": Text(
        "Mean length went from {first} to {last}, and held-out results or fewer cut-off answers speak for it.",
        "平均长度从 {first} 到 {last}，留出评测或截断减少说明这是好事。",
    ),
    "cause": Text(
        "A length penalty, a reward that a short guess can get, per-sequence averaging.",
        "长度惩罚；短猜测也能拿到的奖励；按序列平均。",
    ),
    "prescription": Text(
        "Evaluate held-out accuracy; read samples; drop the length penalty.", "测留出准确率；读样本；去掉长度惩罚。"
    ),
    "prescription:earned": Text("", ""),
    "principle": Text("shorter than half its start", "短于起点的一半"),
    "unlike": Text("conciseness that held-out results confirm", "有留出评测支持的简洁"),
}


@rule(
    stage="aim",
    order=20,
    certainty="likely",
    experiment="then_and_now",
    needs=("length/mean",),
    trend=True,
)
def length_collapse(run: Columns) -> Result:
    """Below half its start and held-out results do not follow. Earned where many samples were cut off at the start.

    An environment's episodes are no answers: one that is solved sooner pays more, and is shorter.
    """
    length = run.comparable("length/mean")
    if not length or len(length) < 16 or length.first <= 0 or length.last >= 0.5 * length.first or not length.trending:
        return None
    cut = run.get("truncated/share")
    earned = held_out_rose(run) or (cut is not None and cut.first > 0.1 and cut.last < cut.first / 2)
    p = progress(run)
    if p and p.rose and of_episodes(length.key):
        return None
    rows = [r for r, x in zip(length.rows, length.values) if x < 0.5 * length.first]
    return finding(
        "length_collapse",
        "info" if earned else "warning",
        rows,
        variant="earned" if earned else "",
        first=length.first,
        last=length.last,
        ratio=length.last / length.first,
        gain=p.reward.gain if p else 0.0,
        metrics=("length/mean", "reward/mean"),
    )


def fires() -> Case:
    return (healthy(completions__mean_length=line(400, 40)), {})


def silent() -> Case:
    return (evaluated(healthy(completions__mean_length=line(400, 40)), eval_accuracy=line(0.2, 0.6)), {})
