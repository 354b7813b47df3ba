"""What text tasks add to `anygrpo check`."""

from __future__ import annotations

import re
from typing import Any

from anygrpo.core.outcome import Outcome, not_applicable
from anygrpo.language.tasks.answer import Answer

SHOWN = 5


def duplicates(subject: Any) -> Outcome:
    """Prompts that are in training and among the held-out ones, spaces, case and punctuation aside."""
    task = subject.task
    if not task.size:
        return not_applicable("duplicates", ("the task has no end of prompts", "任务的提示无穷"))
    held_out = {_normal(p): p for p in task.held_out()}
    both = {}
    for prompt in task.prompts(0, task.size):
        if (key := _normal(prompt)) in held_out:
            both.setdefault(key, prompt)
    numbers = {"both": len(both), "held_out": len(held_out), "train": task.size}
    if not both:
        text = ("no held-out prompt is also in training", "留出提示均不在训练集中")
        return Outcome("duplicates", "ok", text, numbers=numbers)
    rows = [{"held_out": _text(held_out[k])[:80], "train": _text(p)[:80]} for k, p in list(both.items())[:SHOWN]]
    text = (
        "{both} of {held_out} held-out prompts are also in training, but for spaces, case or punctuation",
        "{held_out} 条留出提示中有 {both} 条也在训练集中（忽略空格、大小写与标点）",
    )
    cure = ("take them out of one side: held-out measures would be too good", "从一侧删除，否则评估偏高")
    return Outcome("duplicates", "warning", text, cure, numbers, rows, certainty="certain")


def _text(prompt: Any) -> str:
    content = prompt["prompt"] if isinstance(prompt, dict) else prompt
    return content if isinstance(content, str) else "\n".join(str(m["content"]) for m in content)


def _normal(prompt: Any) -> str:
    return re.sub(r"[\W_]+", " ", _text(prompt).casefold()).strip() or _text(prompt)


def paid_for_environment(subject: Any) -> Outcome:
    """Does the reward pay for words that the environment wrote, where the policy says nothing?"""
    name = "paid_for_environment"
    if getattr(getattr(subject.policy, "config", None), "environment", None) is None:
        return not_applicable(name, ("there is no environment", "没有环境"))
    prompts, outputs = subject.answers.prompts, subject.answers.outputs
    cases = [
        (prompt, output.inserted)
        for prompt, row in zip(prompts, outputs)
        for output in row
        if isinstance(output, Answer) and output.inserted
    ]
    if not cases:
        return not_applicable(name, ("no sample had a second turn", "没有样本进入第二轮"))
    asked = [prompt for prompt, _ in cases]
    silent = [Answer([{"role": "assistant", "content": "", "by": "policy"}]) for _ in cases]
    alone = [Answer([{"role": "assistant", "content": "", "by": "policy"}, *said]) for _, said in cases]
    # What a reward would read that takes the whole conversation for the policy's.
    scores = subject.task.score(asked, [list(pair) for pair in zip(silent, alone)])
    gain = (scores.rewards[:, 1] - scores.rewards[:, 0])[scores.valid.all(1)] if scores.valid is not None else None
    gain = scores.rewards[:, 1] - scores.rewards[:, 0] if gain is None else gain
    paid = int((gain > 1e-6).sum())
    numbers = {"paid": paid, "cases": len(cases), "most": float(gain.max()) if len(gain) else 0.0}
    if not paid:
        text = (
            "in {cases} conversations the environment's words alone earn nothing",
            "{cases} 段对话中，环境的话本身不得分",
        )
        return Outcome(name, "ok", text, numbers=numbers)
    text = (
        "in {paid} of {cases} conversations the environment's words alone earn up to {most:.3g}, with a silent policy",
        "{cases} 段对话中有 {paid} 段，策略不说话而环境的话得到至多 {most:.3g} 分",
    )
    cure = (
        'judge the policy\'s own text (str(output)), or the messages with by = "policy"',
        '只评策略自己的文本（str(output)），或 by = "policy" 的消息',
    )
    return Outcome(name, "serious", text, cure, numbers, certainty="certain")
