"""Whether updates move more than the gates: the same gate values, before and after, should restore the same picture."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anygrpo.core.probe_outcome import Outcome, not_applicable
from anygrpo.gates.choosing import Drawing, deterministic, replaying
from anygrpo.gates.effects import UNCHANGED
from anygrpo.gates.policy import StochasticPolicy
from anygrpo.spoken import Text

UPDATES = 10
DRAWS = 8
_ALIKE = 2.0
"""Standard errors of a paired change that are chance."""

HELD: Text = Text(
    "{updates:.0f} updates at {rate:.1e} move the gates alone: the same gate values still give the same output",
    "{updates:.0f} 次更新（学习率 {rate:.1e}）只移动门控：相同的门控取值给出相同的输出",
)
FELL: Text = Text(
    "{updates:.0f} updates at {rate:.1e} change what the network makes of the same gate values: reward {before:.4g} -> "
    "{after:.4g}, where the best of {draws} draws is worth {headroom:+.2g}",
    "{updates:.0f} 次更新（学习率 {rate:.1e}）改变了网络在相同门控取值下的输出：奖励 {before:.4g} -> {after:.4g}，"
    "而 {draws} 次抽样中最好的只值 {headroom:+.2g}",
)
LOOSE: Text = Text(
    "the policy's gradient trains the body too, and no loss holds it: {updates:.0f} updates at {rate:.1e} change the "
    "output by {change:.2g}/255 at the same gate values (draws change it by {drawn:.2g}/255)",
    "策略梯度也训练网络主体，而没有损失约束它：{updates:.0f} 次更新（学习率 {rate:.1e}）在相同门控取值下使输出变化 "
    "{change:.2g}/255（抽样变化 {drawn:.2g}/255）",
)
TAUGHT: Text = Text(
    "the body moves with a supervised loss beside the policy's: reward at the same gate values {before:.4g} -> "
    "{after:.4g} in {updates:.0f} updates",
    "主体在监督损失下一同训练：相同门控取值的奖励在 {updates:.0f} 次更新内 {before:.4g} -> {after:.4g}",
)
SHAKEN: Text = Text(
    "the rate shakes the body, supervised loss or not: {updates:.0f} updates at {rate:.1e} on one rollout take the "
    "reward at the same gate values from {before:.4g} to {after:.4g}, where the best of {draws} draws is worth "
    "{headroom:+.2g}",
    "即使有监督损失，该学习率也会动摇主体：在同一 rollout 上 {updates:.0f} 次更新（{rate:.1e}）使相同门控取值的奖励从 "
    "{before:.4g} 变为 {after:.4g}，而 {draws} 次抽样中最好的只值 {headroom:+.2g}",
)
SLOWER: Text = Text(
    'a rate that climbs (warmup) or a smaller one, or features = "detached" with a supervised stage after',
    '让学习率预热（warmup）或减小本阶段学习率，或用 features = "detached"，之后再加监督阶段',
)
CURE: Text = Text(
    'let gates read their input without gradient (features = "detached", gate_features = "detached"), or train the '
    "heads alone (policy.train), or hold the body by algorithm.lambda_supervised = 1",
    '让门控不带梯度地读取输入（features = "detached"、gate_features = "detached"），或只训练门控头（policy.train），'
    "或用 algorithm.lambda_supervised = 1 约束主体",
)


def probe(subject: Any) -> Outcome:
    """For `anygrpo check`: the recipe's own updates on one rollout, and the reward of held gate values around them."""
    if not isinstance(subject.policy, StochasticPolicy):
        return not_applicable("body", Text("this policy has no gates", "该策略没有门控"))
    if subject.stage.method != "grpo" or not len(subject.batch):
        return not_applicable(
            "body", Text("nothing is drawn here, or all earn the same", "此处没有抽样，或奖励全都相同")
        )
    return told(measured(subject), bool(subject.numbers.lambda_supervised))


def measured(subject: Any) -> dict[str, Any]:
    """Numbers of `told`: "change" and "drawn" are mean absolute changes of the output in /255."""
    policy, task = subject.policy, subject.task
    prompts = subject.answers.prompts[:8]
    held = policy.rollout_with(prompts, 1, deterministic(policy.mode))
    start = [_again(policy, prompt, held.samples, i) for i, prompt in enumerate(prompts)]
    with policy.seeded(0):
        drawn = policy.decode(policy.rollout_with(prompts, DRAWS, Drawing()).samples)
    before = task.score(prompts, [[x] for x in start]).rewards[:, 0]
    best = task.score(prompts, drawn).rewards.amax(1)
    with subject.untouched():
        updater = subject.updater()
        for _ in range(UPDATES):
            subject.accumulate(updater, subject.batch)
            updater.step(subject.rate, measure=False)
        end = [_again(policy, prompt, held.samples, i) for i, prompt in enumerate(prompts)]
    after = task.score(prompts, [[x] for x in end]).rewards[:, 0]
    changes = [float((x - y).abs().mean()) for x, y in zip(start, end)]
    draws = [float((x - y).abs().mean()) for x, row in zip(start, drawn) for y in row]
    lost = before - after
    return {
        "updates": UPDATES,
        "rate": subject.rate,
        "draws": DRAWS,
        "before": float(before.mean()),
        "after": float(after.mean()),
        "headroom": float((best - before).mean()),
        "lost": float(lost.mean()),
        "error": float(lost.std() / max(len(lost), 1) ** 0.5) if len(lost) > 1 else 0.0,
        "change": 255 * sum(changes) / len(changes),
        "drawn": 255 * sum(draws) / len(draws),
    }


def _outputs(policy: StochasticPolicy, rollout: Any) -> list[Tensor]:
    return [row[0] for row in policy.decode(rollout.samples)]


def _again(policy: StochasticPolicy, prompt: Any, samples: Any, i: int) -> Tensor:
    """The output of one prompt under the gate values that it had."""
    values = {k.removeprefix("site/"): x[i] for k, x in samples.items() if k.startswith("site/")}
    with torch.no_grad():
        return _outputs(policy, policy.rollout_with([prompt], 1, replaying(values)))[0]


def _ruined(numbers: dict[str, Any]) -> Outcome:
    return Outcome("body", "serious", FELL, CURE, numbers)


def told(numbers: dict[str, Any], supervised: bool) -> Outcome:
    """Serious where the reward falls beyond chance and beyond what draws could win back; a warning where the body moves
    and no loss holds it."""
    fell = numbers["lost"] > max(numbers["headroom"], 0.0) and numbers["lost"] > _ALIKE * numbers["error"]
    if numbers["change"] <= 255 * UNCHANGED:
        return Outcome("body", "ok", HELD, numbers=numbers)
    if fell:
        return Outcome("body", "warning", SHAKEN, SLOWER, numbers) if supervised else _ruined(numbers)
    if supervised:
        return Outcome("body", "ok", TAUGHT, numbers=numbers)
    return Outcome("body", "warning", LOOSE, CURE, numbers)
