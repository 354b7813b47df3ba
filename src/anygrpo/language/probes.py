"""What text tasks add to `anygrpo check`."""

from __future__ import annotations

import re
from typing import Any

from anygrpo.core.probe_outcome import Outcome, not_applicable
from anygrpo.spoken import Text

SHOWN = 5


def duplicates(subject: Any) -> Outcome:
    """Prompts that are in training and among the held-out ones, spaces, case and punctuation aside."""
    task = subject.task
    if not task.size:
        return not_applicable("duplicates", Text("the task has no end of prompts", "任务的提示无穷"))
    held_out = {_normal(p): p for p in task.held_out()}
    both = {}
    for prompt in task.prompts(0, task.size):
        if (key := _normal(prompt)) in held_out:
            both.setdefault(key, prompt)
    numbers = {"both": len(both), "held_out": len(held_out), "train": task.size}
    if not both:
        text = Text("no held-out prompt is also in training", "留出提示均不在训练集中")
        return Outcome("duplicates", "ok", text, numbers=numbers)
    rows = [{"held_out": _text(held_out[k])[:80], "train": _text(p)[:80]} for k, p in list(both.items())[:SHOWN]]
    text = Text(
        "{both} of {held_out} held-out prompts are also in training, but for spaces, case or punctuation",
        "{held_out} 条留出提示中有 {both} 条也在训练集中（忽略空格、大小写与标点）",
    )
    cure = Text("take them out of one side: held-out measures would be too good", "从一侧删除，否则评估偏高")
    return Outcome("duplicates", "warning", text, cure, numbers, rows, certainty="certain")


def _text(prompt: Any) -> str:
    content = prompt["prompt"] if isinstance(prompt, dict) else prompt
    return content if isinstance(content, str) else "\n".join(str(m["content"]) for m in content)


def _normal(prompt: Any) -> str:
    return re.sub(r"[\W_]+", " ", _text(prompt).casefold()).strip() or _text(prompt)
