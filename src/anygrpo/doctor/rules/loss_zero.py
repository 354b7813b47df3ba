"""Why the loss is 0."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import mean
from anygrpo.doctor.synthetic import Case, flat, healthy, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The loss is near 0, and that is no fault", "损失接近 0，这不是故障"),
    "evidence": Text(
        "|loss| is {size} on average over {count} rows while the gradient norm is {grad}. With advantages of mean 0"
        " and ratios of 1 the loss is 0 (plus beta x KL) whatever its gradient is.",
        "{count} 行里 |损失| 平均为 {size}，而梯度范数是 {grad}。优势均值为 0、比率为 1 时，损失的数值就是 0（加上"
        " beta × KL），与梯度的大小无关。",
    ),
    "cause": Text("As designed: a group's advantages add up to 0.", "本来如此：组内优势之和为 0。"),
    "prescription": Text(
        "Watch reward, KL and gradient norm; the loss says nothing here.",
        "看奖励、KL 和梯度范数；损失在这里说明不了什么。",
    ),
    "principle": Text("sum of A x 1 = 0, while sum of A x grad log p is not", "Σ A × 1 = 0，而 Σ A × ∇log p 不为 0"),
    "unlike": Text("a gradient that is 0 too: then nothing is learned", "梯度也为 0：那才是没有在学"),
}


@rule(
    stage="facts",
    order=60,
    certainty="likely",
    needs=("loss/total|loss/policy", "grad_norm/total", "reward/mean"),
)
def loss_zero(run: Columns) -> Result:
    """The standing answer to the standing question. Only where the gradient is alive."""
    loss, grad = run.get("loss/total") or run.get("loss/policy"), run.get("grad_norm/total")
    assert loss
    assert grad
    size = mean([abs(x) for x in loss.values])
    if len(loss) < 3 or size > 2e-3 or grad.median <= 1e-6:
        return None
    return finding("loss_zero", "info", loss.rows[:3], size=size, count=len(loss), grad=grad.median)


def fires() -> Case:
    return (healthy(loss=flat(1e-5)), {})


def silent() -> Case:
    return (healthy(loss=line(0.5, 0.2)), {})
