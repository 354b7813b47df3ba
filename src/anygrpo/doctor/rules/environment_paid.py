"""The reward pays for words that the policy did not write."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The reward pays for the environment's words", "奖励为环境的话付分"),
    "evidence": Text(
        "In {share:%} of the held-out conversations that were tried, the words of tools or of the environment"
        " alone earn a reward, with a policy that says nothing.",
        "在所试的留出对话中，有 {share:%} 仅凭工具或环境的话就能得分，而策略什么也没说。",
    ),
    "cause": Text(
        "The reward reads the whole conversation, not what the policy wrote. A tool that gives back its input"
        " lets the policy write its own reward.",
        "奖励读的是整段对话，而不是策略所写的部分。会原样返回输入的工具，让策略能自己写出奖励。",
    ),
    "prescription": Text(
        'Judge the policy\'s own text (str(output)), or the messages with by = "policy".',
        '只评策略自己的文本（str(output)），或 by = "policy" 的消息。',
    ),
    "principle": Text(
        "who is paid for another's words learns to have them said", "为别人的话得分，就会学着让别人说那些话"
    ),
    "unlike": Text(
        "an environment that pays by itself for a turn (kind = environment): that is not tried here",
        "由环境自己按轮付分（kind = environment）：此处不试",
    ),
}


@rule(
    stage="answers",
    order=11,
    certainty="certain",
    needs=("eval/environment_paid",),
)
def environment_paid(run: Columns) -> Result:
    """Measured by the run itself at each evaluation; one conversation is enough, since scoring is no estimate."""
    share = run.get("eval/environment_paid")
    assert share
    if share.values[-1] <= 0:
        return None
    return finding(
        "environment_paid",
        "serious",
        [r for r, x in zip(share.rows, share.values) if x > 0],
        metrics=("eval/environment_paid",),
        share=share.values[-1],
    )


def fires() -> Case:
    return (healthy(eval__environment_paid=flat(0.4)), {})


def silent() -> Case:
    return (healthy(eval__environment_paid=flat(0.0)), {})
