"""In-domain up, held-out down."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.chains import ROLL_BACK
from anygrpo.doctor.evidence.progress import outcomes, progress
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import mean
from anygrpo.doctor.synthetic import Case, evaluated, healthy, wiggle
from anygrpo.spoken import Text

WORDS = {
    "title": Text("In-domain up, held-out down", "域内上升，留出下降"),
    "evidence": Text(
        "The reward gained {gain} while {name} went from {first} to {last} (standard error of the difference"
        " {width}); its best was in row {best}.",
        "奖励增加 {gain}，而 {name} 从 {first} 到 {last}（差的标准误 {width}）；最好在第 {best} 行。",
    ),
    "cause": Text("Too many passes over narrow data.", "在窄数据上反复训练太多遍。"),
    "prescription": Text("Stop at the peak, half the rate, beta above 0.", "停在峰值，学习率减半，beta 大于 0。"),
    "principle": Text("in-domain up, held-out down", "域内上升，留出下降"),
    "unlike": Text("another template or parser in the evaluation", "评测用了别的模板或解析器"),
}


@rule(
    stage="aim",
    order=40,
    certainty="likely",
    experiment="then_and_now",
    needs=("reward/mean",),
    trend=True,
    explains=("validation_drop",),
)
def overfitting(run: Columns) -> Result:
    """The trained reward rose while a held-out measure lost more than two standard errors of its own noise."""
    p = progress(run)
    if not p or not p.rose:
        return None
    for s in outcomes(run).values():
        width = s.noise * math.sqrt(2 / s.quarter_size)
        if len(s) >= 6 and s.gain < -2 * width and s.gain < -s.mde and mean(s.values[-2:]) < s.first - width:
            best = s.rows[s.values.index(s.high)]
            return finding(
                "overfitting",
                "warning",
                s.rows[-s.quarter_size :],
                name=s.key,
                first=s.first,
                last=s.last,
                best=best,
                width=width,
                gain=p.reward.gain,
                changes=(*ROLL_BACK, Change("beta", 0.001)),
                metrics=("reward/mean", s.name),
            )
    return None


def fires() -> Case:
    return (evaluated(healthy(120), eval_accuracy=lambda t: 0.5 - 0.1 * t + 0.004 * math.sin(50 * t)), {})


def silent() -> Case:
    return (evaluated(healthy(120), eval_accuracy=wiggle(0.4, 0.02)), {})
