"""The reward fell."""

from __future__ import annotations

from itertools import accumulate

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.chains import ALL_FAIL, ROLL_BACK
from anygrpo.doctor.evidence.progress import held_out_rose, lost_everything, moved, progress
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series, mean, std
from anygrpo.doctor.synthetic import Case, healthy, line
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The reward fell", "奖励下降了"),
    "evidence": Text(
        "From first to last quarter it went from {first} to {last}: {gain}, where {count} rows could have shown {mde}.",
        "从最初四分之一到最后四分之一，奖励从 {first} 变为 {last}：{gain}，而 {count} 行足以看出 {mde}。",
    ),
    "title:step": Text("The reward fell at once", "奖励骤降"),
    "evidence:step": Text(
        "From row {row} on all rewards (mean {last}, at most {high}) are below all before (mean {first}, at least"
        " {low}).",
        "从第 {row} 行起，所有奖励（均值 {last}，最高 {high}）都低于之前的所有奖励（均值 {first}，最低 {low}）。",
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
    """A fall beyond what chance shows, with a trend; or all rows from one on are below all rows before it."""
    p = progress(run)
    if not p or held_out_rose(run) or moved(run) is False:
        return None
    r = p.reward
    if not p.fell:
        return at_once(run, r)
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


def at_once(run: Columns, reward: Series) -> Result:
    """A split, eight rows or more on each side, of which every later reward is below every earlier one, by three sd.

    A quarter that holds the step looks noisy, and few rows behind it move no quarter: the two sides are compared.
    """
    values, best = reward.values, (0.0, 0)
    n = len(values)
    lows = list(accumulate(values, min))
    highs = list(accumulate(reversed(values), max))[::-1]
    for i in range(8, n - 7):
        best = max(best, (lows[i - 1] - highs[i], i))
    i = best[1]
    if not i or mean(values[:i]) - mean(values[i:]) < 3 * max(std(values[:i]), std(values[i:])):
        return None
    return finding(
        "reward_fell",
        "warning",
        reward.rows[i:],
        variant="step",
        row=reward.rows[i],
        first=mean(values[:i]),
        last=mean(values[i:]),
        low=lows[i - 1],
        high=highs[i],
        explains=ALL_FAIL if lost_everything(run) else (),
        changes=ROLL_BACK,
        metrics=("reward/mean",),
    )


def fires() -> Case:
    return (healthy(reward=line(0.6, 0.4), kl=0.02), {})


def silent() -> Case:
    return (healthy(reward=line(0.4, 0.6)), {})
