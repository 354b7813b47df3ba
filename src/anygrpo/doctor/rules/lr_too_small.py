"""The policy has hardly moved."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.groups import dead_share
from anygrpo.doctor.evidence.progress import held_out_rose, payable, progress, worthless
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import mean
from anygrpo.doctor.synthetic import Case, dull, flat
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The policy has hardly moved", "策略几乎没有移动"),
    "evidence": Text(
        "After {updates} steps KL to the start is {kl}; the reward changed by {gain}, less than the {mde} this"
        " log could have shown; peak rate {lr}. The gradient is there.",
        "{updates} 步之后，对起点的 KL 只有 {kl}；奖励变化 {gain}，小于这份日志能显示的 {mde}；最高学习率 {lr}"
        "。梯度是有的。",
    ),
    "evidence:bound": Text(
        "After {updates} steps KL to the start is {kl} a token. Over {length} tokens a policy so near to its start"
        " can differ from it in mean reward by {most} at most (Pinsker); the reward changed by {gain}. Peak rate"
        " {lr}. The gradient is there.",
        "{updates} 步之后，对起点的 KL 每个 token 只有 {kl}。在 {length} 个 token 上，离起点这么近的策略，平均奖励"
        "至多相差 {most}（Pinsker 不等式）；奖励变化 {gain}。最高学习率 {lr}。梯度是有的。",
    ),
    "cause": Text(
        "A rate chosen for full fine-tuning (LoRA wants about 10 times as much), long warm-up, early decay.",
        "用了全参数微调的学习率（LoRA 大约要 10 倍）；预热太长；衰减太早。",
    ),
    "prescription": Text(
        "Learning rate times 5 to 10. `anygrpo check` finds the rate that moves a stated KL per update.",
        "学习率乘以 5 到 10。`anygrpo check` 能找出每次更新移动给定 KL 的学习率。",
    ),
    "principle": Text("a policy that has not moved cannot have learned", "没有移动的策略不可能学到东西"),
    "unlike": Text(
        "starved groups, truncation, stale rollouts: here groups are alive and answers end",
        "组没有信号、截断、样本陈旧：这里组有信号，回答也能结束",
    ),
}


@rule(
    stage="step",
    order=20,
    certainty="likely",
    experiment="two_rates",
    needs=("reward/mean", "kl/reference"),
    trend=True,
    explains=("no_learning",),
    live="patient",
)
def lr_too_small(run: Columns) -> Result:
    """No gain, KL to the start below .001 after 100 or more updates, and the gradient is not what is missing."""
    p, kl, grad = progress(run), run.comparable("kl/reference"), run.get("grad_norm/total")
    if not p or p.fell or not kl or run.updates < 100 or held_out_rose(run):
        return None
    moved, most = mean(kl.tail(0.5)), payable(run, kl)
    if not p.flat and not worthless(run, p, kl):
        return None
    if abs(moved) >= 1e-3 or all(x == 0 for x in kl.values) or (grad and grad.median <= 1e-9):
        return None
    dead = dead_share(run)
    if dead and mean(dead.tail(0.5)) > 0.7:
        return None
    rate = run.get("lr")
    return finding(
        "lr_too_small",
        "warning",
        kl.rows[-kl.quarter_size :],
        variant="" if p.flat else "bound",
        most=most or 0.0,
        length=length.median if (length := run.get("length/mean")) else 0.0,
        kl=moved,
        updates=run.updates,
        gain=p.reward.gain,
        mde=p.reward.mde,
        lr=rate.high if rate else "?",
        changes=(Change("learning_rate", factor=5.0),),
        metrics=("kl/reference", "reward/mean"),
    )


def fires() -> Case:
    return (dull(200, kl=flat(1e-4)), {})


def silent() -> Case:
    return (dull(200, kl=flat(1e-4), frac_reward_zero_std=flat(0.95)), {})
