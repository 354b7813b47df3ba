"""The mean advantage is 0 by construction."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The mean advantage is 0 by construction", "平均优势必然为 0，不是异常"),
    "title:nothing": Text("Nothing varies", "什么都不变化"),
    "title:dead": Text("Nothing varies", "什么都不变化"),
    "evidence": Text(
        "|mean| < .001 in all {count} rows: that is what a baseline does, and no symptom.",
        "全部 {count} 行 |均值| < .001：这正是基线的作用，不是症状。",
    ),
    "evidence:dead": Text(
        "The mean is 0 in all {count} rows, and {name} is 0 too: there is nothing to learn from.",
        "全部 {count} 行均值为 0，而 {name} 也是 0：没有可学的东西。",
    ),
    "evidence:alive": Text(
        "A mean advantage of 0 is what subtracting the group's mean does. It is no symptom here: {name} ="
        " {value} is not 0.",
        "减去组均值之后，平均优势当然是 0。这里不是症状：{name} = {value} 不为 0。",
    ),
    "evidence:nothing": Text(
        "The mean advantage is 0 and so is {name}: nothing varies, so there is nothing to learn from.",
        "平均优势是 0，{name} 也是 0：什么都不变化，没有可学的东西。",
    ),
    "evidence:alone": Text(
        "A mean advantage of 0 is what subtracting the group's mean does. Alone it says nothing.",
        "减去组均值之后，平均优势当然是 0。单凭它说明不了什么。",
    ),
    "cause": Text("The group's mean is subtracted.", "减去了组均值。"),
    "prescription": Text("", ""),
    "principle": Text("a baseline inside the group makes the mean 0", "组内的基线使均值为 0"),
    "unlike": Text(
        "a fault: that needs its std, its maximum or the gradient to be 0 as well",
        "故障：那还需要它的标准差、最大值或梯度也为 0",
    ),
}


@rule(
    stage="facts",
    order=50,
    certainty="certain",
    needs=("advantage/mean",),
)
def mean_advantage(run: Columns) -> Result:
    """Said to reassure: people read it as a symptom. A fault only if nothing else varies either."""
    centre = run.get("advantage/mean")
    assert centre
    if any(abs(x) > 1e-3 for x in centre.values) or len(centre) < 3:
        return None
    for name in ("advantage/std", "reward/std_within", "grad_norm/total"):
        other = run.get(name)
        if other and other.high <= 1e-9:
            return finding(
                "mean_advantage", "warning", centre.rows[:3], variant="dead", name=other.key, count=len(centre)
            )
    return finding("mean_advantage", "info", centre.rows[:3], count=len(centre))


def fires() -> Case:
    return (healthy(advantage__mean=0.0), {})


def silent() -> Case:
    return (healthy(advantage__mean=flat(0.3)), {})
