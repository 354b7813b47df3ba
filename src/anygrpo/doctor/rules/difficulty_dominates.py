"""Difficulty of the prompt drowns the group's signal."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import median, paired
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Difficulty of the prompt drowns the group's signal", "提示的难度淹没了组内信号"),
    "evidence": Text("{share:%} of the groups have advantages of one sign.", "{share:%} 的组里所有优势同号。"),
    "evidence:bound": Text(
        "The mean advantage is {mean} with a std of {std}: in {count} of {of} rows over nine in ten"
        " samples have one"
        " sign (Cantelli: at least m^2 / (m^2 + s^2), here {share:%}). With the group's own baseline the mean is 0.",
        "优势的均值是 {mean}，标准差 {std}：{of} 行中有 {count} 行九成以上的样本同号（坎泰利不等式：至少"
        " m²/(m²+s²)，"
        "此处为 {share:%}）。减去组均值后，均值应为 0。",
    ),
    "evidence:running": Text(
        "Rewards of one group spread by {within}, {share:%} of the running std that they are divided by ({running}):"
        " nearly all of an advantage is its prompt's difficulty.",
        "组内奖励的标准差为 {within}，只有所除以的滑动标准差（{running}）的 {share:%}：优势几乎全是提示的难度。",
    ),
    "cause": Text(
        "Running (EMA) statistics over prompts in place of statistics of the group.",
        "用了跨提示的滑动（EMA）统计，而不是组内统计。",
    ),
    "prescription": Text("Normalise inside the group.", "在组内做归一化。"),
    "principle": Text("running statistics mix prompts", "滑动统计把提示混在一起"),
    "unlike": Text("a batch of mastered prompts", "恰好一批都已掌握的提示"),
}


@rule(
    stage="groups",
    order=30,
    certainty="likely",
    experiment="larger_group",
    needs=("advantage/one_sign|advantage/mean|reward/running_std",),
    explains=("no_learning", "mean_advantage"),
)
def difficulty_dominates(run: Columns) -> Result:
    """Groups of one sign counted; or a batch whose mean advantage is so far from 0 that few can have the other sign.

    Cantelli: with mean m and std s, at most s^2 / (s^2 + m^2) of the samples have the sign opposite to m. A group's own
    baseline makes the mean 0, so whatever is subtracted there is not the group's mean.
    """
    share = run.get("advantage/one_sign")
    cut = (Change("advantage", "zscore"),)
    if share:
        if share.last <= 0.9:
            return None
        return finding("difficulty_dominates", "serious", share.rows, share=share.last, changes=cut)
    centre, spread = run.get("advantage/mean"), run.get("advantage/std")
    if not centre or not spread:
        return _divided_by_more(run)
    both = paired(centre, spread)
    bounds = [(r, m * m / (m * m + s * s)) for r, m, s in both if abs(m) > 1e-3]
    held = [r for r, least in bounds if least > 0.9]
    if len(both) < 4 or len(held) <= 0.5 * len(both):
        return _divided_by_more(run) if bounds else None  # means of 0 throughout: a baseline of the group's own
    return finding(
        "difficulty_dominates",
        "serious",
        held,
        variant="bound",
        certainty="certain",
        share=median(least for _, least in bounds),
        mean=centre.median,
        std=spread.median,
        count=len(held),
        of=len(both),
        changes=cut,
        metrics=("advantage/mean", "advantage/std"),
    )


SMALL = 0.2
"""Group spread over running std below which most groups have one sign: of two samples 91%, 1/2 + asin(.96) / pi."""


def _divided_by_more(run: Columns) -> Result:
    """The log has running statistics, whose std dwarfs that of a group."""
    within, running = run.get("reward/std_within"), run.get("reward/running_std")
    both = [(r, w, s) for r, w, s in paired(within, running) if s > 0] if within and running else []
    small = [r for r, w, s in both if w < SMALL * s]
    if within is None or running is None or len(both) < 4 or len(small) <= 0.9 * len(both):
        return None
    return finding(
        "difficulty_dominates",
        "serious",
        small,
        variant="running",
        within=within.median,
        running=running.median,
        share=median(w / s for _, w, s in both),
        changes=(Change("advantage", "zscore"),),
        metrics=("reward/std_within", "reward/running_std"),
    )


def fires() -> Case:
    return (healthy(advantage__one_sign=flat(0.98)), {})


def silent() -> Case:
    return (healthy(advantage__one_sign=flat(0.3)), {})
