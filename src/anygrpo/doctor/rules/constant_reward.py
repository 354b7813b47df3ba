"""All samples of a prompt get the same reward."""

from __future__ import annotations

import re

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.chains import NOTHING_FLOWS
from anygrpo.doctor.evidence.groups import near_ceiling
from anygrpo.doctor.evidence.progress import LONG_ENOUGH, Progress
from anygrpo.doctor.findings import Certainty, Change
from anygrpo.doctor.log import number
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.series import Series, mean, paired
from anygrpo.doctor.synthetic import Case, dull, flat, wiggle
from anygrpo.spoken import Text

WORDS = {
    "title": Text("All samples of a prompt get the same reward", "同一提示的所有样本得分相同"),
    "evidence": Text(
        "Within groups the reward's std is {within}, between prompts it is {between}; {dead:%} of the groups"
        " have no spread. What the policy says does not change its score.",
        "组内奖励的标准差是 {within}，提示之间是 {between}；{dead:%} 的组没有差异。策略说什么都不影响得分。",
    ),
    "evidence:counted": Text(
        "In all {count} rows every group is without spread: reward std 0, share of groups with equal rewards 1."
        " With no difference inside a group every advantage is 0, and so is the policy's gradient.",
        "{count} 行里每一组的奖励都没有差异：标准差为 0，零方差组的比例为 1。组内没有差异，优势全为 0，策略的"
        "梯度也为 0。",
    ),
    "evidence:uncounted": Text(
        "The reward's std is 0 in all {count} rows and its mean did not rise. Taken within groups, that is no spread in"
        " any group and no advantage; a std over one sample a row would be 0 as well, and the share of groups without"
        " spread was not logged.",
        "{count} 行里奖励的标准差全为 0，均值也没有上升。若是组内的标准差，则任何组都没有差异，优势全为 0；若每行"
        "只有一个样本，标准差也会是 0，而零方差组的比例没有记录。",
    ),
    "evidence:extremes": Text(
        "The best and the worst reward of all {count} rows are both {value}: rewards that are all equal leave every"
        " advantage at 0.",
        "{count} 行里最高和最低的奖励都是 {value}：奖励全相等，优势就全为 0。",
    ),
    "evidence:advantages": Text(
        "Rewards go from {low} to {high}, and still the largest and the smallest advantage are 0 in all {count} rows:"
        " rewards differ between prompts and never inside a group.",
        "奖励从 {low} 到 {high} 不等，而全部 {count} 行里最大和最小的优势都是 0：奖励只在提示之间不同，组内从不不同。",
    ),
    "evidence:all": Text("The reward is {value} in all {count} rows.", "奖励在全部 {count} 行里都是 {value}。"),
    "evidence:gates": Text(
        "Within groups the reward's std is {within}, between prompts it is {between}; {dead:%} of the groups"
        " have no spread. What the gates are does not change the score.",
        "组内奖励的标准差是 {within}，提示之间是 {between}；{dead:%} 的组没有差异。门控取什么值都不影响得分。",
    ),
    "cause:gates": Text(
        "The output does not depend on the gates that are sampled (or the weights behind them are 0, as at the"
        " start), or the gates have collapsed: then the entropy has fallen.",
        "输出不依赖被采样的门控（或其后的权重为 0，如训练刚开始时），或门控已坍缩：此时熵已下降。",
    ),
    "prescription:gates": Text(
        "Set the gates of one input to both ends of their range: outputs equal, sample other sites"
        ' (policy.sites) or warm up with drawn gates (policy.supervised_gates = "sampled"); outputs unlike,'
        " widen the gates (a lower policy.concentration, a smaller rate).",
        "对同一输入把门控设到取值范围的两端：输出相同，就换采样的位置（policy.sites），或用随机门控预热（"
        "policy.supervised_gates"
        ' = "sampled"）；输出不同，就放宽门控（更小的 policy.concentration、更小的学习率）。',
    ),
    "cause": Text(
        "The output is ignored, truncated or unparsed; a fixed seed or temperature 0; groups along the wrong axis.",
        "输出被忽略、被截断或没有解析；固定种子或温度为 0；分组的轴弄错。",
    ),
    "cause:advantages": Text(
        "The reward belongs to the prompt: the output is ignored, truncated or unparsed; groups along the wrong axis; a"
        " fixed seed or temperature 0. Or the column is at fault: advantages logged after a mask, or rounded to 0.",
        "奖励属于提示而不属于回答：输出被忽略、被截断或没有解析；分组的轴弄错；固定种子或温度为 0。也可能是这一列有误："
        "优势在屏蔽之后才记录，或被舍入为 0。",
    ),
    "prescription": Text(
        "Print one group: prompts, texts, rewards. Texts equal: sampling. Texts differ: the reward.",
        "打印一组：提示、文本、奖励。文本相同是采样的问题，文本不同是奖励的问题。",
    ),
    "principle": Text("no spread in a group, no advantage", "组内没有差异就没有优势"),
    "unlike": Text("mastered groups, where prompts do not differ either", "已掌握的组：那时提示之间也没有差别"),
}

OTHER_BASELINES = re.compile(r"overall|running|history|batch|ema|gae|reinforce|remax", re.I)
"""Estimators whose baseline reaches beyond the group."""


@rule(
    stage="groups",
    order=20,
    certainty="likely",
    experiment="gold_and_wrong",
    needs=("reward/mean",),
    explains=("dead_term", *NOTHING_FLOWS),
    replaces=("starved_groups", "mastered_groups"),
)
def constant_reward(run: Columns) -> Result:
    """Samples of one prompt all score alike though prompts do not: the sample is not what is being scored."""
    reward, within, dead = run.get("reward/mean"), run.get("reward/std_within"), run.get("groups/dead")
    assert reward
    if found := by_extremes(run, reward):
        return found
    if within and within.high <= 1e-9 and not (len(reward) >= LONG_ENOUGH and near_ceiling(run)):
        if dead is not None and all(x >= 1 for x in dead.values):
            return proved(run, reward, within, "likely" if other_baseline(run) else "certain")
        if dead is None:  # a std over one sample a row is 0 too, and where the reward rises groups had some spread
            alone = run.settings.get("group_size") == 1 or Progress(reward).rose
            return None if alone else proved(run, reward, within, "likely", "uncounted")
    if len(reward) < 4:
        return None
    if reward.constant and not (dead and dead.mean < 0.9) and not (within and within.high > 1e-6):
        return finding("constant_reward", "serious", reward.rows, variant="all", value=reward.mean, count=len(reward))
    between = between_spread(run)
    still = within is not None and within.median <= 0.01 * between and mean(within.values) <= 0.05 * between
    if between <= 1e-9 or not still or (dead is not None and dead.mean < 0.95):
        return None
    assert within
    gates = run.get("restoration/gate_edge_share") is not None  # no texts and no temperature there
    return finding(
        "constant_reward",
        "serious",
        within.rows,
        variant="gates" if gates else "",
        within=within.mean,
        between=between,
        dead=dead.mean if dead else 1.0,
        changes=(Change("entropy_coef", None),) if gates else (Change("temperature", 1.0),),
        metrics=("reward/std_within", "groups/dead"),
    )


def by_extremes(run: Columns, reward: Series) -> Result:
    """What the largest and the smallest say, from one row on: all rewards equal, or no advantage though they are not.

    All right (a reward of 1 everywhere) is mastery and not judged here.
    """
    best, worst = run.get("reward/max"), run.get("reward/min")
    if not best or not worst or not (len(best) == len(worst) == len(reward)):
        return None
    up, down = run.get("advantage/max"), run.get("advantage/min")
    moved = up is not None and down is not None and max(up.high, -down.low) > 5e-4
    if moved:  # a critic or a running baseline: advantages need no spread
        return None
    metrics = ("reward/max", "reward/min")
    if all(top == low for _, top, low in paired(best, worst)) and best.constant:
        if best.high >= 1 or len(reward) >= 4:  # of many rows the other sentences say it
            return None
        few = len(best) < 3  # one prompt a row that nobody solves is an ordinary row
        return finding(
            "constant_reward", "warning" if few else "serious", best.rows, variant="extremes",
            certainty=certainty_of_extremes(run, few), value=best.high, count=len(best), metrics=metrics,
        )  # fmt: skip
    if len(best) < 3 and all(
        top == low for _, top, low in paired(best, worst)
    ):  # a prompt a row: no two inside a group
        return None
    if not up or not down or len(up) < len(reward) or best.high - worst.low < 0.1 or spread_inside(run, reward):
        return None
    return finding(
        "constant_reward", "serious", up.rows, variant="advantages", low=worst.low, high=best.high, count=len(up),
        metrics=("advantage/max", *metrics),
    )  # fmt: skip


def certainty_of_extremes(run: Columns, few: bool) -> Certainty:
    """Certain where the advantages are logged too, and a row is known to hold several groups (or their share)."""
    alone = other_baseline(run) or run.settings.get("group_size") == 1
    dead, prompts = run.get("groups/dead"), number(run.settings.get("queries"))
    counted = (dead is not None and dead.low >= 1) or (prompts is not None and prompts > 1)
    seen = run.get("advantage/max") and run.get("advantage/min")
    return "certain" if seen and counted and not few and not alone else "likely"


def spread_inside(run: Columns, reward: Series) -> bool:
    """Whether the log says that groups do differ, or the run learns: then the column of advantages is at fault."""
    within, dead = run.get("reward/std_within"), run.get("groups/dead")
    differ = (within is not None and within.high > 1e-6) or (dead is not None and dead.mean < 0.95)
    return differ or (len(reward) >= LONG_ENOUGH and Progress(reward).rose)


def between_spread(run: Columns) -> float:
    """How much rewards differ across prompts: the logged std over the batch, or the wander of the mean between rows."""
    for name in ("reward/std_between", "reward/std"):
        if found := run.get(name):
            return found.median
    spreads = run.family("reward/component_std/")
    reward = run.get("reward/mean")
    if len(spreads) == 1:
        return next(iter(spreads.values())).median
    return reward.noise if reward and len(reward) >= 8 else 0.0


def other_baseline(run: Columns) -> bool:
    """Whether groups without spread may have advantages: a baseline beyond the group, or a spread that was logged."""
    spread = run.get("advantage/std")
    return (
        bool(spread and spread.high > 1e-6)
        or OTHER_BASELINES.search(str(run.settings.get("normaliser", ""))) is not None
    )


def proved(
    run: Columns, reward: Series, within: Series, certainty: Certainty = "certain", variant: str = "counted"
) -> Result:
    """No group with any spread: no advantage, whatever the reason. Counted, one row is enough to say so."""
    gates = run.get("restoration/gate_edge_share") is not None
    return finding(
        "constant_reward",
        "serious",
        within.rows,
        variant="gates" if gates else variant,
        certainty=certainty,
        value=reward.mean,
        count=len(within),
        within=within.mean,
        between=between_spread(run),
        dead=1.0,
        changes=(Change("entropy_coef", None),) if gates else (),
        metrics=("reward/std_within", "groups/dead"),
    )


def fires() -> Case:
    return (dull(reward=wiggle(0.5, 0.1), reward_std=0.0, frac_reward_zero_std=1.0), {})


def silent() -> Case:
    return (dull(reward=flat(0.95), reward_std=flat(0.02), frac_reward_zero_std=flat(0.9)), {})
