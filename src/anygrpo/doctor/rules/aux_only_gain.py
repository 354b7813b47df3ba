"""Form improved, substance did not."""

from __future__ import annotations

import re

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import progress
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, healthy, line, wiggle
from anygrpo.spoken import Text

AUXILIARY = re.compile(
    r"format|xml|tag|style|length|brevity|concise|lang|tone|polite|soft_|strict|bonus|repetition|penalt|markdown|json_valid|int_reward"
)


WORDS = {
    "title": Text("Form improved, substance did not", "形式变好了，内容没有"),
    "evidence": Text(
        "The reward gained {gain}: {aux} of it from {names}, {main} from {mains}.",
        "奖励增加 {gain}：其中 {aux} 来自 {names}，{main} 来自 {mains}。",
    ),
    "cause": Text("Auxiliary terms are easier and as heavy as the goal.", "辅助项更容易，分量却和目标一样重。"),
    "prescription": Text(
        "Gate them on the main term (format counts only if the answer is right), or drop them once they are learnt.",
        "用主项做门（答案对了格式才算分），或学会之后去掉辅助项。",
    ),
    "principle": Text("the gain split over the parts of the reward", "把收益拆到奖励的各个部分"),
    "unlike": Text("the first 50 rows, where form comes first", "最初约 50 行：形式总是先学会"),
}


@rule(
    stage="reward",
    order=20,
    certainty="likely",
    experiment="gold_and_wrong",
    needs=("reward/mean",),
    trend=True,
)
def aux_only_gain(run: Columns) -> Result:
    """Four fifths of the gain from form, the substance flat. Not said of the first 50 rows: form comes first."""
    p = progress(run)
    main = {n: s for n, s in run.components.items() if not AUXILIARY.search(n) and len(s) >= 8}
    aux = {n: s for n, s in run.components.items() if AUXILIARY.search(n) and len(s) >= 8}
    if not p or not p.rose or not main or not aux or len(p.reward) <= 50:
        return None
    from_aux = sum(s.gain for s in aux.values())
    from_main = sum(s.gain for s in main.values())
    if from_aux < 0.8 * (from_aux + max(0.0, from_main)) or any(s.gain > s.mde and s.gain > 0 for s in main.values()):
        return None
    return finding(
        "aux_only_gain",
        "warning",
        p.reward.rows[-p.reward.quarter_size :],
        gain=p.reward.gain,
        aux=from_aux,
        main=from_main,
        names=", ".join(sorted(aux)),
        mains=", ".join(sorted(main)),
        metrics=("reward/mean",),
    )


def fires() -> Case:
    return (
        healthy(reward=line(0.5, 0.9), rewards__answer__mean=wiggle(0.4), rewards__format__mean=line(0.1, 0.5)),
        {},
    )


def silent() -> Case:
    return (
        healthy(reward=line(0.5, 1.1), rewards__answer__mean=line(0.4, 0.8), rewards__format__mean=line(0.1, 0.3)),
        {},
    )
