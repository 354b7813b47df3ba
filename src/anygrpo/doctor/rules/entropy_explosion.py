"""The policy dissolves into noise."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import Progress, progress
from anygrpo.doctor.evidence.sampling import clip_high
from anygrpo.doctor.findings import Change, Finding
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import mean, median, paired
from anygrpo.doctor.synthetic import Case, flat, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The policy dissolves into noise", "熵爆炸：策略趋于随机"),
    "evidence": Text(
        "Entropy rose from its minimum {least} to {now} while the reward went from {before} to {after}.",
        "熵从最低的 {least} 升到 {now}，奖励从 {before} 变为 {after}。",
    ),
    "title:bonus": Text("The entropy bonus pulls harder than the reward", "熵奖励的拉力大于奖励本身"),
    "evidence:bonus": Text(
        "With an entropy coefficient of {coef} the bonus had {first} times the gradient of the policy term at the"
        " start, and {middle} times in the median of {count} measurements; the reward went from {before} to"
        " {after}.",
        "熵系数为 {coef}：开始时熵项梯度是策略项的 {first} 倍，{count} 次测量的中位数为 {middle} 倍；"
        "奖励从 {before} 变为 {after}。",
    ),
    "title:bonus_alone": Text("The entropy bonus pulls harder than the reward", "熵奖励的拉力大于奖励本身"),
    "evidence:bonus_alone": Text(
        "The entropy term had {first} times the gradient of the policy term at the start, and {middle} times in the"
        " median of {count} measurements, while the entropy rose; the reward went from {before} to {after}.",
        "开始时熵项梯度是策略项的 {first} 倍，{count} 次测量的中位数为 {middle} 倍，而熵在上升；"
        "奖励从 {before} 变为 {after}。",
    ),
    "cause:bonus_alone": Text(
        "An entropy coefficient made for another reward scale or reduction.", "熵系数是按别的奖励尺度或归约方式定的。"
    ),
    "prescription:bonus_alone": Text(
        "A coefficient of 0 to 0.01; it should move less than the reward does.",
        "系数取 0 到 0.01；它的作用应小于奖励。",
    ),
    "cause:bonus": Text(
        "An entropy coefficient made for another reward scale or reduction.", "熵系数是按别的奖励尺度或归约方式定的。"
    ),
    "prescription:bonus": Text(
        "A coefficient of 0 to 0.01; it should move less than the reward does.",
        "系数取 0 到 0.01；它的作用应小于奖励。",
    ),
    "cause": Text("An entropy bonus, an upper clip too wide, off-policy noise.", "熵奖励；裁剪上界太宽；异策略噪声。"),
    "prescription": Text("Entropy bonus off, upper clip down.", "关掉熵奖励，收窄裁剪上界。"),
    "principle": Text("noise, not exploration", "是噪声，不是探索"),
    "unlike": Text("exploration, which pays", "有回报的探索"),
}


@rule(
    stage="entropy",
    order=30,
    certainty="likely",
    experiment="two_rates",
    needs=("entropy", "reward/mean"),
    trend=True,
    explains=("late_collapse", "length_explosion"),
)
def entropy_explosion(run: Columns) -> Result:
    """Over twice its own minimum and over 1, while the reward came down from its best."""
    entropy, p = run.get("entropy"), progress(run)
    assert entropy
    if not p or len(entropy) < 16:
        return None
    if found := bonus(run, p):
        return found
    smooth = entropy.smooth()
    least = min(smooth)
    at = smooth.index(least)
    before = mean(p.reward.values[max(0, at - p.reward.edge) : at + 1])
    drop = before - p.reward.last
    width = p.reward.noise * (2 / min(at + 1, p.reward.edge)) ** 0.5
    if smooth[-1] <= 1 or smooth[-1] <= 2 * least or drop <= 2 * width or not (p.reward.gain < 0 or drop > 3 * width):
        return None
    changes = (Change("entropy_coef", 0.0), *clip_high(run, 0.2))
    cut = run.get("truncated/share")
    endless = cut is not None and cut.last > 0.15 and cut.last > 3 * min(cut.smooth())  # noise has no end token
    return finding(
        "entropy_explosion",
        "warning",
        entropy.rows[at:],
        least=least,
        now=smooth[-1],
        before=before,
        after=p.reward.last,
        changes=changes,
        metrics=("entropy", "reward/mean"),
        explains=("truncation", "reward_fell", "sampler_mismatch") if endless else (),
    )


def bonus(run: Columns, p: Progress) -> Finding | None:
    """Of the two gradients, measured apart, the bonus's was the larger one at first; later they hold each other."""
    ours, theirs, coef = run.get("grad_norm/policy"), run.get("grad_norm/entropy"), run.settings.get("entropy_coef")
    known, entropy = float(coef) if isinstance(coef, int | float) else None, run.get("entropy")
    rises = known > 0 if known is not None else entropy is not None and entropy.last > entropy.values[0]
    if not ours or not theirs or not rises or p.rose:
        return None
    ratios = [e / x for _, x, e in paired(ours, theirs) if x > 0]
    if len(ratios) < 3 or ratios[0] <= 1 or median(ratios) <= 0.5:
        return None
    return finding(
        "entropy_explosion",
        "warning",
        theirs.rows,
        variant="bonus_alone" if known is None else "bonus",
        coef=known or 0.0,
        first=ratios[0],
        middle=median(ratios),
        count=len(ratios),
        before=p.reward.first,
        after=p.reward.last,
        changes=(Change("entropy_coef", 0.0),),
        metrics=("entropy", "reward/mean"),
        explains=("truncation", "length_explosion", "reward_fell", "no_learning"),
    )


def fires() -> Case:
    return (
        healthy(reward=lambda t: 0.7 - 0.5 * t, kl=flat(0.02), entropy=lambda t: 0.5 + 2 * t**2),
        {},
    )


def silent() -> Case:
    return (healthy(entropy=lambda t: 0.5 + 2 * t**2), {})
