"""The reward rose and a part of it fell."""

from __future__ import annotations

from typing import Any

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import progress
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series
from anygrpo.doctor.synthetic import Case, healthy, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The reward rose and a part of it fell", "奖励上升，其中一部分却下降"),
    "evidence": Text(
        "The reward rose from {r_first} to {r_last}; its part {name} went from {first} to {last}"
        " ({gain}; {mde} could"
        " be seen), by {lost:%} of its start. Another part pays for it.",
        "奖励从 {r_first} 升到 {r_last}；其中的 {name} 从 {first} 变为 {last}（{gain}；可分辨 {mde}），失去了起点的"
        " {lost:%}。另一部分替它付了账。",
    ),
    "cause": Text(
        "The parts pull against each other, and the cheaper one has the larger weight.",
        "各部分互相拉扯，较容易的那一部分权重更大。",
    ),
    "prescription": Text(
        "Decide which part is the aim. Gate the others on it (they count only where it is met) or lower"
        " their weights;"
        " look at the step where the two part.",
        "先定下哪一部分是目标；让其余部分只在目标达成时计分，或降低其权重；看两者分开的那一步。",
    ),
    "principle": Text("a sum may rise while what it was made for falls", "总和可以上升，而真正想要的部分在下降"),
    "unlike": Text("a penalty that is paid less, whose fall is a gain", "惩罚项变小：那是好事"),
}


@rule(
    stage="aim",
    order=12,
    certainty="likely",
    experiment="then_and_now",
    needs=("reward/mean",),
    trend=True,
)
def part_fell(run: Columns) -> Result:
    """Beyond its own resolution, by a tenth of its start, and by a tenth of what the sum gained. No vocabulary."""
    p = progress(run)
    if not p or not p.rose or p.reward.gain <= p.reward.mde / 2:
        return None
    weights = {key: w for s in run.inferred.sums for key, w in s.weights.items()}
    found = [(s.gain * abs(weights.get(s.key, 1.0)), name, s) for name, s in run.components.items()
             if lost(s) and weights.get(s.key, 1.0) > 0]  # fmt: skip
    if not found:
        return None
    worth, name, worst = min(found, key=lambda f: f[0])
    if -worth < 0.1 * p.reward.gain:
        return None
    return finding(
        "part_fell",
        "warning",
        worst.rows[-worst.quarter_size :],
        name=name,
        first=worst.first,
        last=worst.last,
        gain=worst.gain,
        mde=worst.mde,
        lost=-worst.gain / abs(worst.first) if worst.first else 1.0,
        r_first=p.reward.first,
        r_last=p.reward.last,
        metrics=("reward/mean", worst.name),
    )


def lost(s: Series) -> bool:
    """A fall that the log can show, and that is a tenth of where it began."""
    return len(s) >= 16 and s.gain < -s.mde and s.trending and -s.gain > 0.1 * abs(s.first)


def fires() -> Case:
    parts: dict[str, Any] = {"rewards__quality__mean": line(0.4, 0.2), "rewards__bonus__mean": line(0.1, 0.5)}
    return (healthy(reward=line(0.5, 0.7), **parts), {})


def silent() -> Case:
    parts: dict[str, Any] = {"rewards__quality__mean": line(0.4, 0.39), "rewards__bonus__mean": line(0.1, 0.5)}
    return (healthy(reward=line(0.5, 0.9), **parts), {})
