"""Can a reward of generated code be had without work? Public attacks and constant answers on the user's own tests."""

from __future__ import annotations

from typing import Any

from anygrpo.core.probe_outcome import Outcome, not_applicable
from anygrpo.probes.subject import Subject
from anygrpo.scoring.attacks import beyond, weak
from anygrpo.spoken import Text

_PROMPTS = 2
"""How many prompts' tests are attacked: about ninety programs each."""


def attacks(subject: Subject) -> Outcome:
    """What the programs of `anygrpo.scoring.attacks` earn. An attack that earns more than every constant answer is a
    fault of the judge, a constant answer with full marks one of the tests."""
    task: Any = subject.task
    tried = task.attacked(task.prompts(0, _PROMPTS)) if hasattr(task, "attacked") else []
    if not tried:
        return not_applicable("attacks", Text("no reward runs generated code", "没有运行生成代码的奖励"))
    earned, lazy = beyond(tried), weak(tried)
    rows = [{"prompt": t.prompt, "program": t.what, "earned": t.earned} for t in [*earned, *lazy]]
    numbers: dict[str, Any] = {
        "tried": sum(t.attack for t in tried),
        "earned": len(earned),
        "lazy": len(lazy),
        "which": "; ".join(sorted({t.what for t in [*earned, *lazy]})),
    }
    if earned:
        text = Text(
            "{earned} of {tried} attacks earned a reward: {which}",
            "{tried} 次攻击中有 {earned} 次得到奖励：{which}",
        )
        cure = Text(
            "compare values in the tests, not what the answer says of itself",
            "测试应比较数值，而不是相信答案自己的说法",
        )
        return Outcome("attacks", "serious", text, cure, numbers, rows)
    if lazy:
        text = Text("answers without work pass all tests: {which}", "不做任何事的答案也通过全部测试：{which}")
        cure = Text("give tests whose results differ from each other", "请给出结果互不相同的测试")
        return Outcome("attacks", "warning", text, cure, numbers, rows)
    return Outcome(
        "attacks", "ok", Text("{tried} attacks tried, none earned", "尝试 {tried} 次攻击，均未得分"), numbers=numbers
    )
