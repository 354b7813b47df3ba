"""Validation fell below its best three times."""

from __future__ import annotations

import math
from collections.abc import Sequence

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.chains import ROLL_BACK
from anygrpo.doctor.evidence.progress import outcomes, rose
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series, mean, std
from anygrpo.doctor.synthetic import Case, evaluated, healthy, line, with_rows
from anygrpo.spoken import Text

APART = 1.25
"""Standard deviations of a side by which all later evaluations lie below all earlier ones."""

WORDS = {
    "title": Text("Validation fell below its best three times", "验证三次低于最好成绩"),
    "evidence": Text(
        "{name}: best {best} (row {row}), the last three at {last}, each more than 2 x {error} below.",
        "{name}：最好 {best}（第 {row} 行），最近三次在 {last}，每次都低 2 x {error} 以上。",
    ),
    "title:halves": Text("Validation fell for good", "验证成绩持续下降"),
    "evidence:halves": Text(
        "{name}: all of the last {count} evaluations (mean {last}) are below all of the {before} before (mean {best});"
        " of evaluations in random order one in {odds} looks so.",
        "{name}：最后 {count} 次评测（均值 {last}）全都低于之前的 {before} 次（均值 {best}）；若评测次序随机，{odds} 次"
        "里才有一次如此。",
    ),
    "cause": Text("Past the useful point.", "已过了有用的点。"),
    "prescription": Text("Early stopping; take the best checkpoint.", "早停；取最好的检查点。"),
    "principle": Text("best minus 2 standard errors, three times", "三次低于最好成绩减两个标准误"),
    "unlike": Text("one bad evaluation", "一次偶然的差评测"),
}


@rule(
    stage="aim",
    order=50,
    certainty="likely",
    experiment="then_and_now",
    trend=True,
)
def validation_drop(run: Columns) -> Result:
    """The last three evaluations all lie more than 2 standard errors of a difference below the best one.

    Or all of the later ones lie below all of the earlier ones, by a tenth of their level: that needs no noise known.

    Of m evaluations of one policy the best is about sqrt(2 ln m) of their standard errors too good: where the training
    reward never rose, that much is luck.
    """
    return below_best(run) or fell_for_good(run)


def fell_for_good(run: Columns) -> Result:
    """A split of the evaluations, three or more on each side, of which every later one is below every earlier one.

    Of n evaluations in random order a given split of m and n - m has the chance 1 / C(n, m); n splits of k measures
    are tried. Evaluations that wander look so more often: of those with a correlation of .8 between neighbours 20% do
    (9 to 40 of them, simulated), and below 5% where the two sides lie `APART` standard deviations of a side apart too.
    """
    seen = outcomes(run)
    for s in seen.values():
        for i in range(3, len(s) - 2):
            before, after = s.values[:i], s.values[i:]
            odds = math.comb(len(s), i) // (len(s) * len(seen))
            if odds >= 20 and fell_apart(before, after):
                return finding(
                    "validation_drop",
                    "warning",
                    s.rows[i:],
                    variant="halves",
                    name=s.key,
                    best=mean(before),
                    last=mean(after),
                    before=i,
                    count=len(after),
                    odds=odds,
                    changes=ROLL_BACK,
                    metrics=(s.name,),
                )
    return None


def fell_apart(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether the sides are `APART` of their own spread (pooled) from each other, and a tenth of their level."""
    squares = std(before) ** 2 * (len(before) - 1) + std(after) ** 2 * (len(after) - 1)
    gap, own = min(before) - max(after), math.sqrt(squares / (len(before) + len(after) - 2))
    return gap > APART * own and mean(before) - mean(after) > 0.1 * abs(mean(before))


def below_best(run: Columns) -> Result:
    """The last three evaluations all more than 2 standard errors of a difference below the best one.

    Of k held-out measures the worst is about sqrt(2 ln k) errors too low by chance.
    """
    logged = run.evals.get("reward_se")
    errors = 2 + math.sqrt(2 * math.log(max(1, sum(len(s) >= 6 for s in outcomes(run).values()))))
    for s in outcomes(run).values():
        if len(s) < 6:
            continue
        measured = max(logged.median if logged and "reward" in s.name else 0.0, of_questions(run, s))
        error = max(measured, s.noise) * math.sqrt(2)
        best = max(s.values[:-3])
        luck = 0.0 if rose(run) else measured * math.sqrt(2 * math.log(len(s) - 3))
        if error > 0 and all(x < best - luck - errors * error for x in s.values[-3:]) and best > s.values[0]:
            row = s.rows[s.values.index(best)]
            return finding(
                "validation_drop",
                "warning",
                s.rows[-3:],
                name=s.key,
                best=best,
                row=row,
                last=mean(s.values[-3:]),
                error=error,
                changes=ROLL_BACK,
                metrics=(s.name,),
            )
    return None


def of_questions(run: Columns, s: Series) -> float:
    """The standard error of a share of right answers, where the number of questions is logged or set; else 0."""
    logged, setting = run.evals.get("prompts"), run.settings.get("eval_questions")
    n = logged.median if logged else float(setting) if isinstance(setting, int | float) else 0.0
    return (
        math.sqrt(0.25 / n) if n >= 1 and s.low >= 0 and s.high <= 1 and s.high < 1 and "reward" not in s.name else 0.0
    )


def fires() -> Case:
    return (
        evaluated(healthy(120), eval_accuracy=lambda t: 0.5 + (0.2 * t if t < 0.6 else 0.12 - 0.25 * (t - 0.6))),
        {},
    )


def silent() -> Case:
    return (
        with_rows(evaluated(healthy(120), eval_accuracy=line(0.2, 0.6)), {110: {"eval_accuracy": 0.3}}),
        {},
    )
