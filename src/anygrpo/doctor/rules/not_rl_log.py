"""This is not a reinforcement-learning log."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.chains import TREND_RULES
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, line, rows
from anygrpo.spoken import Text

EVERYTHING_RL = (*TREND_RULES, "truncation", "zero_gradient", "sup_loss_flat", "grad_spikes", "advantage_compressed")
SIGNS = ("reward/", "advantage/", "ratio/", "log_ratio/", "clip/", "groups/", "kl/")
"""Metrics that only the training of a policy logs."""


WORDS = {
    "title": Text("This is not a reinforcement-learning log", "这不是强化学习的日志"),
    "evidence": Text(
        "No reward, advantage or return among its numbers ({keys}): supervised training, or a log that does not"
        " show its reward.",
        "数值里没有奖励、优势或回报（{keys}）：这是有监督训练，或是没有写出奖励的日志。",
    ),
    "title:unknown": Text("No column of a known name", "没有一列的名字是认识的"),
    "evidence:unknown": Text(
        "{count} rows were read and none of their columns has a known name, nor do they add up to one another"
        " in a way that tells: {keys}.",
        "读到 {count} 行，没有一列的名字是认识的，各列之间的加减关系也不足以判断：{keys}。",
    ),
    "cause:unknown": Text("The trainer has names of its own.", "训练程序用了自己的名字。"),
    "prescription:unknown": Text(
        "Say which column is which, as in --map reward=its/name --map kl=its/name.",
        "请指明各列：--map reward=它的名字 --map kl=它的名字。",
    ),
    "title:none": Text("No numbers of a training run in this file", "这个文件里没有训练的数值"),
    "evidence:none": Text(
        "No row of metrics was found (read as {format}). Nothing was judged.",
        "没有找到任何指标行（按 {format} 读取）。没有作任何判断。",
    ),
    "cause:none": Text(
        "A note, an evaluation's output, or another file than the one that was meant.",
        "这是一份说明、评测的输出，或给错了文件。",
    ),
    "prescription:none": Text(
        "Give a log: trainer_state.json, console output, event files or a table. For numbers in a note:"
        " anygrpo autopsy FILE.",
        "请给出日志：trainer_state.json、控制台输出、事件文件或表格。说明里的数值请用 anygrpo autopsy 文件。",
    ),
    "evidence:preference": Text(
        "rewards/chosen, rewards/rejected, rewards/margins: preference training (DPO, ORPO). Those are"
        " log-ratios of the policy, no rewards that somebody gave.",
        "rewards/chosen、rewards/rejected、rewards/margins：这是偏好训练（DPO、ORPO）。它们是策略自身的对数概率比，"
        "不是外部给的奖励。",
    ),
    "cause": Text(
        "Another stage's log, or a reward under a name that was not recognised.",
        "拿到的是另一个阶段的日志，或奖励的名字没有被认出。",
    ),
    "prescription": Text(
        "Give the log of the RL stage; if the reward is there under another name, say so: --map reward=its/name.",
        "请给出强化学习阶段的日志；如果奖励用了别的名字：--map reward=它的名字。",
    ),
    "principle": Text("no reward, return, score or advantage among the names", "名字里没有奖励、回报、分数或优势"),
    "unlike": Text("an RL log with an unusual name for its reward", "奖励名字不常见的强化学习日志"),
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
