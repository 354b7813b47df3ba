"""The supervised loss no longer falls."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import held_out_rose, rose
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import mean
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The supervised loss no longer falls", "监督损失不再下降"),
    "evidence": Text(
        "{a} to {b} ({change:%}) over the last 30% of the run while it carries weight.",
        "最后 30% 里从 {a} 到 {b}（{change:%}），而它仍带权重。",
    ),
    "cause": Text("Weight too small against the other terms, or converged.", "相对其他项权重太小，或已收敛。"),
    "prescription": Text("Raise its weight and warm up on it.", "提高权重，并用它预热。"),
    "principle": Text("a weighted term that does not fall", "带权重却不下降的一项"),
    "unlike": Text("a converged loss", "已收敛的损失"),
}


@rule(
    stage="outcome",
    order=20,
    certainty="likely",
    experiment="two_rates",
    needs=("loss/supervised",),
    trend=True,
)
def sup_loss_flat(run: Columns) -> Result:
    """Under 2% over the last 30% of the run while it carries weight; under a tenth of its start it has converged.

    So it has, as a note, where it had fallen by a tenth before and the reward or a held-out result rose meanwhile.
    """
    loss = run.get("loss/supervised")
    weight = run.settings.get("lambda_supervised")
    if not loss or len(loss) < 20 or loss.high <= 0 or (isinstance(weight, int | float) and weight == 0):
        return None
    tail = loss.tail(0.3)
    half = len(tail) // 2
    a, b = mean(tail[:half]), mean(tail[half:])
    if a <= 0 or abs(a - b) / a >= 0.02 or b < 0.1 * loss.values[0]:
        return None
    changes = (Change("lambda_supervised", 0.8), Change("warmup"))
    return finding(
        "sup_loss_flat",
        "info" if b <= 0.5 * loss.values[0] or converged(run, loss.start, b) else "warning",
        loss.rows[-len(tail) :],
        a=a,
        b=b,
        change=(a - b) / a,
        changes=changes,
    )


def converged(run: Columns, start: float, end: float) -> bool:
    return end < 0.9 * start and (rose(run) or held_out_rose(run))


def fires() -> Case:
    return (healthy(loss__supervised=flat(1.0)), {"lambda_supervised": 0.5})


def silent() -> Case:
    return (healthy(loss__supervised=lambda t: 0.02 + math.exp(-9 * t)), {"lambda_supervised": 0.5})
