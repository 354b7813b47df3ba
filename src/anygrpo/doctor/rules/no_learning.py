"""The reward does not move."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import held_out_rose, progress
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, dull, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The reward does not move", "奖励没有变化"),
    "evidence": Text(
        "From first to last quarter it changed by {gain}; {count} rows with noise {noise} could have shown"
        " {mde} (start {first}). The log speaks against: {excluded}.",
        "首尾四分之一之间变化 {gain}；{count} 行、噪声 {noise}，本可显示 {mde}（起点"
        " {first}）。日志不支持的原因：{excluded}。",
    ),
    "cause": Text("None of the causes that this log could show.", "不是这份日志能显示的任何一种原因。"),
    "prescription": Text(
        "Next probe: a toy reward must rise within about 20 steps (`anygrpo check`); then group prints and"
        " greedy agreement with the start.",
        "下一个探针：玩具奖励应在约 20 步内上升（`anygrpo check`）；再打印一组，并看与起点的贪心一致率。",
    ),
    "principle": Text("gain below what the log could show", "收益小于日志能显示的"),
    "unlike": Text("a log too short or too noisy to show the gain", "日志太短或太吵，显示不出收益"),
}


@rule(
    stage="outcome",
    order=10,
    certainty="likely",
    experiment="two_rates",
    needs=("reward/mean",),
    trend=True,
    live="patient",
)
def no_learning(run: Columns) -> Result:
    """No gain beyond MDE and no trend. Which causes the log excludes is part of the statement."""
    p = progress(run)
    if not p or not p.flat or held_out_rose(run) or p.reward.constant:
        return None
    return finding(
        "no_learning",
        "warning",
        p.reward.rows[-p.reward.quarter_size :],
        metrics=("reward/mean",),
        gain=p.reward.gain,
        mde=p.reward.mde,
        first=p.reward.first,
        count=len(p.reward),
        noise=p.reward.noise,
        excluded=excluded(run),
    )


def excluded(run: Columns) -> str:
    """Names of causes that the logged metrics speak against."""
    out: list[str] = []
    cut, grad, dead, kl = (
        run.get("truncated/share"),
        run.get("grad_norm/total"),
        run.get("groups/dead"),
        run.comparable("kl/reference"),
    )
    if cut and cut.last < 0.05:
        out.append("truncation")
    if grad and grad.median > 1e-6:
        out.append("zero_gradient")
    if dead and dead.last < 0.3:
        out.append("starved_groups")
    if kl and abs(kl.last) > 1e-3:
        out.append("lr_too_small")
    return ", ".join(out) or "-"


def fires() -> Case:
    return (dull(), {})


def silent() -> Case:
    return (dull(reward=line(0.35, 0.5)), {})
