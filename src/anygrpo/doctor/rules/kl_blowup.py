"""KL ran away and bought no reward."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.chains import COLLAPSES
from anygrpo.doctor.evidence.progress import held_out_rose, progress
from anygrpo.doctor.findings import Change
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import median
from anygrpo.doctor.synthetic import Case, dull, healthy, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("KL ran away and bought no reward", "KL 失控，却没有换来奖励"),
    "evidence": Text(
        "KL went from {early} early to {late} at the end; the reward gained {gain} (row noise {noise}, MDE {mde}).",
        "KL 从早期的 {early} 涨到末尾的 {late}；奖励只增加 {gain}（逐行噪声 {noise}，MDE {mde}）。",
    ),
    "cause": Text(
        "Rate too high for this beta, no clipping, a reward that pays for drift.",
        "学习率相对 beta 太大；没有裁剪；奖励在鼓励漂移。",
    ),
    "prescription": Text(
        "Rate divided by 3 to 10, beta times 5 (.01 to .05 mended a public run), and go back to the checkpoint"
        " before the rise.",
        "学习率除以 3 到 10，beta 乘以 5（某公开训练由 .01 改为 .05 后治好），并回到上涨之前的检查点。",
    ),
    "principle": Text("drift that buys no reward", "换不来奖励的漂移"),
    "unlike": Text(
        "lone spikes; growth from near 0 that comes with reward", "孤立的尖峰；从接近 0 开始、伴随奖励的正常增长"
    ),
}


@rule(
    stage="drift",
    order=20,
    certainty="likely",
    experiment="two_rates",
    needs=("kl/reference", "reward/mean"),
    trend=True,
    explains=("kl_far", *COLLAPSES, "grad_spikes", "length_explosion", "lr_too_large"),
)
def kl_blowup(run: Columns) -> Result:
    """The last KL is over .5 and 8 times its own early median (30 in under 16 rows); the reward gained but noise."""
    p, kl = progress(run), run.comparable("kl/reference")
    if not p or not kl or len(kl) < 8:
        return None
    early, late = median(kl.values[: max(3, len(kl) // 10)]), median(kl.values[-kl.edge :])
    if (
        late <= 0.5
        or late <= (8 if len(kl) >= 16 else 30) * max(early, 1e-12)
        or p.reward.gain > max(p.reward.mde, p.reward.noise)
        or held_out_rose(run)
    ):
        return None
    rows = [r for r, x in zip(kl.rows, kl.values) if x > 8 * max(early, 1e-12) and x > 0.5]
    return finding(
        "kl_blowup",
        "serious",
        rows,
        early=early,
        late=late,
        gain=p.reward.gain,
        mde=p.reward.mde,
        noise=p.reward.noise,
        changes=(Change("learning_rate", factor=0.3), Change("beta", factor=5.0)),
        metrics=("kl/reference", "reward/mean"),
    )


def fires() -> Case:
    return (dull(kl=lambda t: 0.01 + 3 * t**2), {})


def silent() -> Case:
    return (healthy(kl=line(0.001, 0.9)), {})
