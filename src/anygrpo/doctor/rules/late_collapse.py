"""The run lost what it had learned."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.chains import ALL_FAIL, ROLL_BACK
from anygrpo.doctor.evidence.progress import blocks, held_out_rose, lost_everything, moved, progress
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import mean
from anygrpo.doctor.synthetic import Case, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The run lost what it had learned", "学到的东西又丢了"),
    "evidence": Text(
        "The reward peaked at {peak} (rows {at}-{until}) and the last quarter lies at {last}: {sigmas} standard"
        " errors ({width}) below, sustained.",
        "奖励在第 {at}-{until} 行达到峰值 {peak}，最后四分之一在 {last}：低 {sigmas} 个标准误（{width}），且持续如此。",
    ),
    "cause": Text(
        "Rate too high for this late a stage, entropy gone, drift without an anchor.",
        "到了后期学习率仍太大；熵已耗尽；没有锚的漂移。",
    ),
    "prescription": Text(
        "Go back to the checkpoint of the peak and go on with half the rate.",
        "回到峰值处的检查点，用一半的学习率继续。",
    ),
    "principle": Text("own peak minus 3 noise sd, sustained", "低于自身峰值 3 个噪声标准差，且持续"),
    "unlike": Text("noise around a plateau", "平台上的噪声"),
}


@rule(
    stage="aim",
    order=60,
    certainty="likely",
    experiment="two_rates",
    needs=("reward/mean",),
    trend=True,
    explains=("no_learning",),
    replaces=("reward_fell",),
)
def late_collapse(run: Columns) -> Result:
    """In eighths of the run: the last two lie over 3 standard errors below the best, which was a real gain."""
    p = progress(run)
    if not p or len(p.reward) < 32 or held_out_rose(run) or moved(run) is False:
        return None
    parts = blocks(p.reward)
    width = p.reward.noise * math.sqrt(p.reward.inertia / (len(p.reward) / 8))
    peak = max(parts)
    at = parts.index(peak)
    climbed = peak - parts[0] > 3 * width * math.sqrt(2)
    if at > 5 or at == 0 or not climbed or any(x > peak - 3 * width for x in parts[-2:]):
        return None
    if (peak - mean(parts[-2:])) < 0.2 * (peak - parts[0]):
        return None
    rows = p.reward.rows
    eighth = len(rows) // 8
    return finding(
        "late_collapse",
        "warning",
        rows[-2 * eighth :],
        peak=peak,
        at=rows[at * eighth],
        until=rows[min(len(rows) - 1, (at + 1) * eighth)],
        last=mean(parts[-2:]),
        width=width,
        sigmas=(peak - mean(parts[-2:])) / width,
        changes=ROLL_BACK,
        metrics=("reward/mean",),
        explains=ALL_FAIL if lost_everything(run) else (),
    )


def fires() -> Case:
    return (healthy(160, reward=lambda t: 0.3 + 0.6 * t if t < 0.5 else 0.6 - 0.5 * (t - 0.5)), {})


def silent() -> Case:
    return (healthy(160, reward=lambda t: min(0.6, 0.3 + 0.6 * t)), {})
