"""The evaluation cannot show this difference."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import outcomes, rounding
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series
from anygrpo.doctor.synthetic import Case, evaluated, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The evaluation cannot show this difference", "评测显示不出这个差别"),
    "evidence": Text(
        "{name} changed by {claimed}; {n} questions can show {limit} (2 standard errors of a difference).",
        "{name} 变化 {claimed}；{n} 道题只能显示 {limit}（差的两个标准误）。",
    ),
    "cause": Text("Too few questions.", "提示太少。"),
    "prescription": Text(
        "Ask at least {needed} questions, or compare answers pairwise.", "至少用 {needed} 道题，或逐题配对比较。"
    ),
    "principle": Text(
        "2 se of a difference of two rates: 2 sqrt(2 p (1-p) / n)", "两个比率之差的两个标准误：2 sqrt(2 p (1-p) / n)"
    ),
    "unlike": Text("paired comparison, which needs fewer", "配对比较：需要的更少"),
}


@rule(
    stage="outcome",
    order=60,
    certainty="ask",
    experiment="then_and_now",
    trend=True,
)
def eval_resolution(run: Columns) -> Result:
    """A difference between first and last evaluation that so many questions cannot show, and how many could."""
    asked = run.settings.get("eval_questions")
    for s in outcomes(run).values():
        rate = s.last
        if not 0 < rate < 1 or not 0 <= s.low <= s.high <= 1:
            continue
        n = int(asked) if isinstance(asked, int | float) and asked > 0 else questions(s)
        if n is None:
            continue
        claimed = s.values[-1] - s.values[0]
        limit = 2 * math.sqrt(2 * rate * (1 - rate) / n)
        if 0 < abs(claimed) < limit:
            needed = math.ceil(8 * rate * (1 - rate) / claimed**2)
            return finding(
                "eval_resolution",
                "info",
                (s.rows[0], s.rows[-1]),
                name=s.key,
                claimed=claimed,
                n=n,
                limit=limit,
                needed=needed,
            )
    return None


def questions(s: Series) -> int | None:
    """The number of questions, where all accuracies are multiples of 1/n and n is small enough to be sure of."""
    if rounding(list(s.values)) > 1e-5 or len(set(s.values)) < 3:
        return None
    for n in range(4, 201):
        if all(abs(x * n - round(x * n)) < 1e-4 for x in s.values):
            return n
    return None


def fires() -> Case:
    return (
        evaluated(healthy(), eval_accuracy=lambda t: round((0.40 + 0.05 * t) * 50) / 50),
        {"eval_questions": 50},
    )


def silent() -> Case:
    return (
        evaluated(healthy(), eval_accuracy=lambda t: round((0.2 + 0.5 * t) * 50) / 50),
        {"eval_questions": 50},
    )
