"""The engine may still sample with old weights."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.distances import both, sampled_by_the_start
from anygrpo.doctor.evidence.progress import held_out_rose, progress
from anygrpo.doctor.findings import Finding
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import median
from anygrpo.doctor.synthetic import Case, dull, flat, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The engine may still sample with old weights", "采样引擎可能还在用旧权重"),
    "evidence": Text(
        "{name} grows from {first} to {last} with the updates while the reward changes by {gain} (MDE {mde}).",
        "{name} 随更新从 {first} 增到 {last}，而奖励只变化 {gain}（MDE {mde}）。",
    ),
    "title:refreshed": Text("Samples come from older weights than the ones trained", "样本来自比正在训练的更旧的权重"),
    "evidence:refreshed": Text(
        "Each rollout gets one update, so every ratio is 1 where the sampler has the newest weights. It was in the"
        " first row ({name} {first}), and is not any more: {value} in the median of the rest.",
        "每个 rollout 只更新一次，采样端若用最新权重，比值应恒为 1。第一行如此（{name} 为 {first}），"
        "之后不再是：其余各行的中位数为 {value}。",
    ),
    "prescription:refreshed": Text(
        "Hand the weights to the sampler after every update, or log old log-probs of the policy that really"
        " sampled and correct for them. `anygrpo doctor RUN --confirm` samples before and after an update.",
        "每次更新后把权重交给采样端，或记录真正采样的策略的旧对数概率并加以校正。"
        "`anygrpo doctor RUN --confirm` 会在一次更新前后各采样一次。",
    ),
    "evidence:start": Text(
        "In {count} rows the KL to the policy that sampled is the KL to the start (median ratio {ratio}), and both"
        " grow to {last}: the samples still come from the first weights.",
        "有 {count} 行里，到采样策略的 KL 就等于到起点的 KL（比值的中位数 {ratio}），两者一起升到 {last}："
        "样本仍来自最初的权重。",
    ),
    "cause": Text("The adapter or the weights are not sent to the sampling engine.", "适配器或权重没有送到采样引擎。"),
    "prescription": Text(
        "Probe: a toy reward (count of one word) must rise within about 20 steps. If it does not, the sampler"
        " is not the policy being trained.",
        "探针：一个玩具奖励（数某个词）应在约 20 步内上升；如果不升，采样的不是正在训练的策略。",
    ),
    "principle": Text(
        "an engine that keeps the first weights drifts from the trainer", "停在旧权重上的引擎会离训练者越来越远"
    ),
    "unlike": Text("a numerical mismatch, which is there from the first row", "数值误差：它从第一行就在"),
}


@rule(
    stage="scoring",
    order=60,
    certainty="likely",
    experiment="frozen_replay",
    needs=("kl/rollout|mismatch/log_prob|mismatch/ratio_mean|kl/behaviour", "reward/mean"),
    trend=True,
    explains=("no_learning", "clip_saturated", "lr_too_small"),
)
def stale_rollouts(run: Columns) -> Result:
    """The distance of sampler and trainer grows with the updates while the reward does not move."""
    if found := refreshed_late(run) or never_refreshed(run):
        return found
    p = progress(run)
    distance = run.get("mismatch/log_prob") or run.get("kl/rollout")
    if not p or not p.flat or not distance or len(distance) < 12 or held_out_rose(run):
        return None
    if not distance.trending or distance.gain <= distance.mde or distance.last < 2 * max(distance.first, 1e-9):
        return None
    return finding(
        "stale_rollouts",
        "warning",
        distance.rows,
        certainty="ask",
        name=distance.key,
        first=distance.first,
        last=distance.last,
        gain=p.reward.gain,
        mde=p.reward.mde,
    )


def refreshed_late(run: Columns) -> Finding | None:
    """With one update a rollout: a ratio that is 1 in the first row and not in most of the others."""
    own = run.comparable("kl/behaviour")
    if run.settings.get("on_policy") is not True or not own or len(own) < 8 or own.values[0] > 1e-4:
        return None
    rest = median(own.values[1:])
    if rest <= 0.005:
        return None
    return finding(
        "stale_rollouts",
        "warning",
        [r for r, x in zip(own.rows, own.values) if x > 0.005],
        variant="refreshed",
        name=own.key,
        first=own.values[0],
        value=rest,
        metrics=("kl/behaviour", "ratio/mean"),
        explains=("log_ratio_explosion", "kl_blowup"),
    )


def never_refreshed(run: Columns) -> Finding | None:
    """The distance from the sampler is the distance from the start, row by row, while the policy walks away."""
    rows = sampled_by_the_start(run)
    if not rows:
        return None
    held = [(own, start) for r, own, start in both(run) if r in set(rows)]
    return finding(
        "stale_rollouts",
        "warning",
        rows,
        variant="start",
        count=len(rows),
        ratio=median(own / start for own, start in held),
        last=max(start for _, start in held),
        metrics=("kl/behaviour", "kl/reference"),
        explains=("log_ratio_explosion", "kl_blowup"),
    )


def fires() -> Case:
    return (dull(train_rollout_logprob_abs_diff=line(0.001, 0.05)), {})


def silent() -> Case:
    return (dull(train_rollout_logprob_abs_diff=flat(0.05)), {})
