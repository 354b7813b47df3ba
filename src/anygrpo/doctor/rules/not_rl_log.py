"""This is not a reinforcement-learning log."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.chains import TREND_RULES
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, line, rows

EVERYTHING_RL = (*TREND_RULES, "truncation", "zero_gradient", "sup_loss_flat", "grad_spikes", "advantage_compressed")
SIGNS = ("reward/", "advantage/", "ratio/", "log_ratio/", "clip/", "groups/", "kl/")
"""Metrics that only the training of a policy logs."""


WORDS = {
    "en": {
        "title": "This is not a reinforcement-learning log",
        "evidence": (
            "No reward, advantage or return among its numbers ({keys}): supervised training, or a log that does not"
            " show its reward."
        ),
        "title:unknown": "No column of a known name",
        "evidence:unknown": (
            "{count} rows were read and none of their columns has a known name, nor do they add up to one another"
            " in a way that tells: {keys}."
        ),
        "cause:unknown": "The trainer has names of its own.",
        "prescription:unknown": "Say which column is which, as in --map reward=its/name --map kl=its/name.",
        "title:none": "No numbers of a training run in this file",
        "evidence:none": "No row of metrics was found (read as {format}). Nothing was judged.",
        "cause:none": "A note, an evaluation's output, or another file than the one that was meant.",
        "prescription:none": (
            "Give a log: trainer_state.json, console output, event files or a table. For numbers in a note:"
            " anygrpo autopsy FILE."
        ),
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
        "evidence": "数值里没有奖励、优势或回报（{keys}）：这是有监督训练，或是没有写出奖励的日志。",
        "title:unknown": "没有一列的名字是认识的",
        "evidence:unknown": "读到 {count} 行，没有一列的名字是认识的，各列之间的加减关系也不足以判断：{keys}。",
        "cause:unknown": "训练程序用了自己的名字。",
        "prescription:unknown": "请指明各列：--map reward=它的名字 --map kl=它的名字。",
        "title:none": "这个文件里没有训练的数值",
        "evidence:none": "没有找到任何指标行（按 {format} 读取）。没有作任何判断。",
        "cause:none": "这是一份说明、评测的输出，或给错了文件。",
        "prescription:none": (
            "请给出日志：trainer_state.json、控制台输出、事件文件或表格。说明里的数值请用 anygrpo autopsy 文件。"
        ),
        "evidence:preference": (
            "rewards/chosen、rewards/rejected、rewards/margins：这是偏好训练（DPO、ORPO）。它们是策略自身的对数概率比，"
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
    """No sign of a policy that is rewarded: another kind of training, unknown names, or no numbers at all."""
    if run.rows == 0:
        if run.ending is not None:
            return None
        if run.unknown or run.series:
            keys = names(run.unknown or tuple(s.key for s in run.series.values()))
            return finding("not_rl_log", "warning", variant="unknown", certainty="ask", count=run.read, keys=keys)
        return finding("not_rl_log", "warning", variant="none", certainty="ask", format=run.format)
    if run.preference:
        return finding("not_rl_log", "warning", variant="preference")
    if run.components or any(name.startswith(SIGNS) and len(s) for name, s in run.series.items()):
        return None
    if any("reward" in name for name in run.evals):
        return None
    return finding(
        "not_rl_log", "warning", certainty="likely", keys=names(tuple(s.key for s in run.series.values() if len(s)))
    )


def names(keys: tuple[str, ...], most: int = 8) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(sorted(keys)[:most])
    return shown + (f" … ({len(keys)})" if len(keys) > most else "")


def fires() -> Case:
    return (rows(40, loss=line(2.0, 0.5), grad_norm=flat(1.0), learning_rate=1e-5), {})


def silent() -> Case:
    return (rows(40, my_reward=line(0.1, 0.5), loss=flat(0.1)), {})
