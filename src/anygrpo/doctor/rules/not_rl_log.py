"""This is not a reinforcement-learning log."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.chains import TREND_RULES
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, line, rows

EVERYTHING_RL = (*TREND_RULES, "truncation", "zero_gradient", "sup_loss_flat", "grad_spikes", "advantage_compressed")


WORDS = {
    "en": {
        "title": "This is not a reinforcement-learning log",
        "evidence": "No reward, advantage or return among its numbers ({keys}): supervised training.",
        "evidence:preference": (
            "rewards/chosen, rewards/rejected, rewards/margins: preference training (DPO, ORPO). Those are"
            " log-ratios of the policy, no rewards that somebody gave."
        ),
        "cause": "Another stage's log, or a reward under a name that was not recognised.",
        "prescription": (
            "Give the log of the RL stage; if the reward is there under another name, say so: --map reward=its/name."
        ),
        "principle": "no reward, return, score or advantage among the names",
        "unlike": "an RL log with an unusual name for its reward",
    },
    "zh": {
        "title": "这不是强化学习的日志",
        "evidence": "数值里没有奖励、优势或回报（{keys}）：这是有监督训练。",
        "evidence:preference": (
            "rewards/chosen、rewards/rejected、rewards/margins：这是偏好训练（DPO、ORPO）。它们是策略自身的对数比，"
            "不是外部给的奖励。"
        ),
        "cause": "拿到的是另一个阶段的日志，或奖励的名字没有被认出。",
        "prescription": "请给出强化学习阶段的日志；如果奖励用了别的名字：--map reward=它的名字。",
        "principle": "名字里没有奖励、回报、分数或优势",
        "unlike": "奖励名字不常见的强化学习日志",
    },
}


@rule(
    stage="log",
    order=30,
    certainty="certain",
    explains=EVERYTHING_RL,
    live="never",
)
def not_rl_log(run: Columns) -> Result:
    if run.rows == 0:
        return None
    if run.preference:
        return finding("not_rl_log", "warning", variant="preference")
    if any(
        run.get(name) for name in ("reward/mean", "advantage/std", "advantage/max", "reward/std_within", "groups/dead")
    ):
        return None
    if run.components or any("reward" in name for name in run.evals):
        return None
    keys = ", ".join(sorted(s.key for s in run.series.values() if len(s))[:6])
    return finding("not_rl_log", "warning", keys=keys)


def fires() -> Case:
    return (rows(40, loss=line(2.0, 0.5), grad_norm=flat(1.0), learning_rate=1e-5), {})


def silent() -> Case:
    return (rows(40, my_reward=line(0.1, 0.5), loss=flat(0.1)), {})
