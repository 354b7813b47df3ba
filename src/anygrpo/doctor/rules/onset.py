"""Which metric left its band first."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import moved, progress
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series, mean
from anygrpo.doctor.synthetic import Case, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("What moved first", "谁先变了"),
    "evidence": Text(
        "The reward leaves its level at row {row}; before it: {before}; after it: {after}.",
        "奖励在第 {row} 行离开原来的水平；在它之前的有：{before}；在它之后的有：{after}。",
    ),
    "cause": Text(
        "What comes first may be the cause; what comes after cannot be.", "先变的可能是原因；后变的不可能是。"
    ),
    "prescription": Text("", ""),
    "principle": Text("a consequence does not precede its cause", "结果不会先于原因"),
    "unlike": Text("a common cause behind both", "两者背后有共同的原因"),
}
WATCHED = (
    "kl/reference",
    "entropy",
    "length/mean",
    "grad_norm/total",
    "clip/fraction",
    "truncated/share",
    "mismatch/log_prob",
    "kl/rollout",
    "log_ratio/abs_max",
    "reward/std_within",
    "groups/dead",
    "loss/consistency",
    "loss/supervised",
)


@rule(
    stage="facts",
    order=70,
    certainty="likely",
    needs=("reward/mean",),
    trend=True,
)
def onset(run: Columns) -> Result:
    """For a run whose reward came down from its best: the first lasting departure of each metric, in order."""
    p = progress(run)
    if not p or len(p.reward) < 40 or moved(run) is False:
        return None
    fall = departure(p.reward, from_peak=True)
    if fall is None:
        return None
    starts = {s.key: at for name in WATCHED if (s := run.get(name)) and (at := departure(s)) is not None}
    width = max(3, len(p.reward) // 20)
    before = [k for k, at in sorted(starts.items(), key=lambda kv: kv[1]) if at < fall - width]
    after = [k for k, at in sorted(starts.items(), key=lambda kv: kv[1]) if at > fall + width]
    if not before and not after:
        return None
    shown = {"before": before, "after": after}
    facts = {k: ", ".join(f"{name} ({starts[name]})" for name in names[:4]) or "-" for k, names in shown.items()}
    return finding("onset", "info", (fall,), row=fall, before=facts["before"], after=facts["after"])


def departure(s: Series, from_peak: bool = False) -> int | None:
    """First row from which the smoothed series stays over 5 standard errors away from its level before; None if none.

    The level is that of the first quarter, or for a reward that rose first, that around its best.
    """
    n = len(s)
    width = max(5, n // 20)
    if n < 40:
        return None
    smooth = s.smooth(width)
    at = max(range(width, n), key=lambda i: smooth[i]) if from_peak else n // 4
    level = smooth[at] if from_peak else mean(s.values[:at])
    error = s.noise * (s.inertia / width) ** 0.5
    far = [abs(x - level) > 5 * error if not from_peak else x < level - 5 * error for x in smooth]
    if error <= 0 or not all(far[-width:]):
        return None
    first = next(i for i in range(n - 1, -1, -1) if i == 0 or not far[i - 1])
    return s.rows[first] if first > at else None


def fires() -> Case:
    rows = healthy(
        200,
        reward=lambda t: 0.3 + 0.6 * t if t < 0.7 else 0.72 - 1.2 * (t - 0.7),
        entropy=lambda t: 0.6 if t < 0.4 else 0.6 + 2 * (t - 0.4),
    )
    return (rows, {})


def silent() -> Case:
    return (healthy(200), {})
