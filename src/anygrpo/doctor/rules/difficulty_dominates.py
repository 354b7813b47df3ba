"""Difficulty of the prompt drowns the group's signal."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, healthy

WORDS = {
    "en": {
        "title": "Difficulty of the prompt drowns the group's signal",
        "evidence": "{share:%} of the groups have advantages of one sign.",
        "cause": "Running (EMA) statistics over prompts in place of statistics of the group.",
        "prescription": "Normalise inside the group.",
        "principle": "running statistics mix prompts",
        "unlike": "a batch of mastered prompts",
    },
    "zh": {
        "title": "提示词的难度淹没了组内信号",
        "evidence": "{share:%} 的组里所有优势同号。",
        "cause": "用了跨提示词的滑动（EMA）统计，而不是组内统计。",
        "prescription": "在组内做归一化。",
        "principle": "滑动统计把提示词混在一起",
        "unlike": "恰好一批都已掌握的提示词",
    },
}


@rule(
    stage="groups",
    order=30,
    certainty="likely",
    needs=("advantage/one_sign",),
    explains=("no_learning",),
)
def difficulty_dominates(run: Columns) -> Result:
    share = run.get("advantage/one_sign")
    assert share
    if share.last <= 0.9:
        return None
    return finding(
        "difficulty_dominates", "serious", share.rows, share=share.last, changes=(Change("advantage", "zscore"),)
    )


def fires() -> Case:
    return (healthy(advantage__one_sign=flat(0.98)), {})


def silent() -> Case:
    return (healthy(advantage__one_sign=flat(0.3)), {})
