"""Texts differ, answers do not."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.sampling import clip_high
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, healthy, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Texts differ, answers do not", "文字各异，答案只有一个"),
    "evidence": Text(
        "Distinct answers fell from {first} to {answers}; distinct texts: {texts}.",
        "不同答案的比例从 {first} 降到 {answers}；不同文本：{texts}。",
    ),
    "cause": Text("All words lead to one guess.", "说法再多也通向同一个猜测。"),
    "prescription": Text(
        "Measure diversity on answers; answer-level temperature, upper clip.",
        "在答案层面衡量多样性；答案层面的温度；放宽裁剪上界。",
    ),
    "principle": Text("different words, one answer", "说法不同，答案只有一个"),
    "unlike": Text("a prompt with one right answer that all have found", "只有一个正确答案、且大家都找到了"),
}


@rule(
    stage="entropy",
    order=40,
    certainty="likely",
    experiment="larger_group",
    needs=("answers/distinct",),
)
def decision_collapse(run: Columns) -> Result:
    answers, texts = run.get("answers/distinct"), run.get("texts/distinct")
    assert answers
    fallen = answers.last < 0.3 * answers.first or answers.last < 0.15
    if not fallen or (texts is not None and texts.last < 0.5):
        return None
    return finding(
        "decision_collapse",
        "warning",
        answers.rows,
        certainty="likely" if texts else "ask",
        changes=clip_high(run, 0.28),
        answers=answers.last,
        first=answers.first,
        texts=texts.last if texts else "?",
    )


def fires() -> Case:
    return (healthy(answers__distinct=line(0.8, 0.05), texts__distinct=flat(0.95)), {})


def silent() -> Case:
    return (healthy(answers__distinct=flat(0.6), texts__distinct=flat(0.95)), {})
