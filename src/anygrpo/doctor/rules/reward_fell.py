"""The reward fell."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.chains import ROLL_BACK
from anygrpo.doctor.evidence.progress import held_out_rose, moved, progress
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, healthy, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The reward fell", "奖励下降了"),
    "evidence": Text(
        "From first to last quarter it went from {first} to {last}: {gain}, where {count} rows could have shown {mde}.",
        "从最初四分之一到最后四分之一，奖励从 {first} 变为 {last}：{gain}，而 {count} 行足以看出 {mde}。",
    ),
    "cause": Text(
        "Steps too large, a reward or an advantage with the wrong sign, samples scored by another policy, or data"
        " that became harder.",
        "步子太大，奖励或优势的符号反了，样本由另一个策略打分，或数据变难了。",
    ),
    "prescription": Text(
        "Score a gold and a wrong answer with the reward itself, then a step at a tenth of the rate"
        " (`anygrpo check`). Go back to the checkpoint from before the fall.",
        "用奖励函数给标准答案和错误答案打分，再用十分之一的学习率走一步（`anygrpo check`）。退回到下降之前的检查点。",
    ),
    "principle": Text("what is optimised should not fall", "被优化的量不该下降"),
    "unlike": Text(
        "a curriculum, or noise: the fall is beyond what chance gives", "课程学习或噪声：这里的下降超出了偶然"
    ),
}


@rule(
    stage="aim",
    order=55,
    certainty="likely",
    experiment="two_rates",
    needs=("reward/mean",),
    trend=True,
    explains=("no_learning", "length_explosion"),
)
def reward_fell(run: Columns) -> Result:
    p = progress(run)
    if not p or not p.fell or held_out_rose(run) or moved(run) is False:
        return None
    r = p.reward
    return finding(
        "reward_fell",
        "warning",
        r.rows[-r.quarter_size :],
        first=r.first,
        last=r.last,
        gain=r.gain,
        mde=r.mde,
        count=len(r),
        changes=ROLL_BACK,
        metrics=("reward/mean",),
    )


def fires() -> Case:
    return (healthy(reward=line(0.6, 0.4), kl=0.02), {})


def silent() -> Case:
    return (healthy(reward=line(0.4, 0.6)), {})
