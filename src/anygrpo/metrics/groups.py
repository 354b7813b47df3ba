"""Metrics of rewards and groups."""

from __future__ import annotations

from anygrpo.metrics.metric import Metric
from anygrpo.spoken import Text

METRICS: tuple[Metric, ...] = (
    Metric(
        "stored/reward/",
        "reward",
        Text(
            "Reward of the stored actions that a step learns from: the file's, not the policy's.",
            "本步所学的已存动作的奖励：属于数据文件，而不是当前策略。",
        ),
        "as reward/..., over the stored actions",
        Text("that of the file: it does not move with training", "取决于文件，不随训练变化"),
        Text(
            "Not a measure of the policy: look at offline/value or eval/reward.",
            "不衡量策略：应看 offline/value 或 eval/reward。",
        ),
    ),
    Metric(
        "kept/",
        "as its own",
        Text(
            "A number of the samples that are left after filters and refilling; without the prefix it is of all "
            "that were "
            "drawn. Logged where something was left out.",
            "过滤与补采之后留下的样本的数值；不带前缀的同名指标统计所有采样。仅在有样本被去掉时记录。",
        ),
        "as the metric without the prefix, over kept samples",
        Text("differs from the number over all samples: a filter chooses", "与全部样本的数值不同：过滤本身就是选择"),
        Text("Judge the policy by the number without the prefix.", "评价策略请看不带前缀的指标。"),
    ),
    Metric(
        "groups/drawn",
        "groups",
        Text(
            "Groups that were drawn for the step, those that were replaced among them.",
            "本步采样的组数，包括被替换的组。",
        ),
        "P over all draws",
        Text(
            "prompts_per_step; with refill up to (1 + refill) times as many",
            "等于 prompts_per_step；启用补采时至多为其 (1 + refill) 倍",
        ),
        Text(
            "Far above groups/kept: most prompts teach nothing now; choose easier or harder ones.",
            "远大于 groups/kept：多数提示此时没有信号；换更易或更难的提示。",
        ),
    ),
    Metric(
        "groups/kept",
        "groups",
        Text("Groups that the step trains on.", "本步用于训练的组数。"),
        "groups with a sample that filters keep",
        Text("prompts_per_step", "等于 prompts_per_step"),
        Text(
            "Below prompts_per_step: raise refill, or choose prompts with reward spread.",
            "小于 prompts_per_step：提高 refill，或换有奖励差异的提示。",
        ),
    ),
    Metric(
        "reward/mean",
        "reward",
        Text(
            "Mean reward of the step's valid samples, after weighting and penalties.",
            "本步有效样本的平均奖励（加权与惩罚之后）。",
        ),
        "mean over valid [P, G]",
        Text("rises; noise of one step is reward/std / sqrt(P x G)", "上升；单步噪声约为 reward/std / sqrt(P×G)"),
        Text(
            "Judge it over many steps and on eval/reward, never on one step.",
            "按多步趋势和 eval/reward 判断，不看单步。",
        ),
    ),
    Metric(
        "reward/max",
        "reward",
        Text("Best reward of the step.", "本步最高奖励。"),
        "max over valid [P, G]",
        Text("above reward/mean while there is something to learn", "仍有可学内容时高于 reward/mean"),
        Text(
            "Equal to reward/mean: every sample is alike; see groups/live.",
            "与 reward/mean 相等：样本全同；看 groups/live。",
        ),
    ),
    Metric(
        "reward/std",
        "reward",
        Text(
            "Spread of all rewards of the step; mixes luck inside groups with difficulty between prompts.",
            "本步全部奖励的标准差，混合了组内差异与提示难度差异。",
        ),
        "population std over valid [P, G]",
        Text("above reward/std_within; steady", "大于 reward/std_within；平稳"),
        Text(
            "Falls to 0: collapse or a saturated reward. Large with reward/std_within near 0: only difficulty differs.",
            "降至 0：坍缩或奖励饱和。大而 reward/std_within 近 0：只有提示难度之差。",
        ),
    ),
    Metric(
        "reward/std_within",
        "reward",
        Text(
            "Mean over groups of the standard deviation inside the group: the signal that GRPO learns from.",
            "各组组内标准差的平均值：GRPO 学习的信号来源。",
        ),
        "mean_p sqrt(sum_g (r - mean_p)^2 / (G - 1))",
        Text("well above 0", "明显大于 0"),
        Text(
            "Near 0: see groups/live. All answers equal: raise temperature or group size, mend the reward.",
            "接近 0 时看 groups/live；答案全同则提高温度或组大小，或修正奖励。",
        ),
    ),
    Metric(
        "reward/std_between",
        "reward",
        Text(
            "Standard deviation of the groups' mean rewards: difficulty, which gives no gradient.",
            "各组平均奖励的标准差：提示难度，不产生梯度。",
        ),
        "population std over prompts of the group mean",
        Text("any; a baseline inside the group removes it", "任意；组内基线会消去它"),
        Text(
            "Much above reward/std_within: normalise inside the group, not over the batch.",
            "远大于 reward/std_within：在组内归一化，不要在全批上。",
        ),
    ),
    Metric(
        "reward/component/",
        "reward",
        Text("Mean of one named part of the reward, before weighting.", "奖励中某一命名部分的平均值（未加权）。"),
        "mean over valid [P, G]",
        Text("not constant all run", "不应全程不变"),
        Text(
            "Constant at its floor: nobody reaches it. Constant at its ceiling: it is an offset.",
            "一直在下限：无人能达到；一直在上限：只是常数偏移。",
        ),
    ),
    Metric(
        "groups/live",
        "1",
        Text(
            "Share of groups whose valid rewards differ: the only groups with a gradient.",
            "组内奖励有差异的组所占比例：只有这些组产生梯度。",
        ),
        "groups with max - min > tolerance / P",
        Text("above 0.3", "大于 0.3"),
        Text(
            "Low: larger groups, easier or harder prompts (pass-rate filter), refill, a reward with more levels.",
            "过低时：增大组、调整提示难度（通过率过滤）、补采样、让奖励更细。",
        ),
        low=0.3,
    ),
    Metric(
        "groups/size",
        "1",
        Text(
            "Most samples compared in one group of this step: sampled or stored, valid, kept by filters.",
            "本步中一组内参与比较的最大样本数：采样或存储的、有效的、过滤后保留的。",
        ),
        "max over groups of samples with a decision in the loss",
        Text("the group size, or what the file and the filters leave of it", "等于组大小，或文件与过滤器留下的数目"),
        Text(
            "Below the group size: filters, invalid samples, or fewer stored candidates.",
            "小于组大小：过滤、无效样本，或存储的候选更少。",
        ),
    ),
    Metric(
        "groups/size_min",
        "1",
        Text(
            "Fewest samples drawn for a prompt of this step. Logged where groups are of unequal size.",
            "本步中一个提示的最少样本数。仅在组大小不等时记录。",
        ),
        "min over groups of samples drawn",
        Text("smallest_group", "等于 smallest_group"),
        Text(
            "Far above smallest_group: nothing is known of the prompts yet, or all teach alike.",
            "远大于 smallest_group：尚不了解各提示，或它们能教的一样多。",
        ),
    ),
    Metric(
        "groups/size_mean",
        "1",
        Text(
            "Mean samples drawn for a prompt of this step. Logged where groups are of unequal size.",
            "本步中每个提示的平均样本数。仅在组大小不等时记录。",
        ),
        "samples drawn / P",
        Text("samples_per_step / prompts_per_step", "等于 samples_per_step / prompts_per_step"),
        Text(
            "Below it: largest_group does not let the budget be spent; raise it.",
            "小于该值：largest_group 使预算用不完；应调大。",
        ),
    ),
    Metric(
        "temperature",
        "1",
        Text(
            "Sampling temperature of this step's samples, which are scored at it too. Logged where it moves.",
            "本步样本的采样温度，评分也用同一温度。仅在温度变化时记录。",
        ),
        "as a schedule or a controller has it",
        Text("within the controller's low and high", "在控制器的 low 与 high 之间"),
        Text(
            "At a bound for long: the target cannot be held; choose another, or wider bounds.",
            "长期处于边界：目标无法保持；换目标或放宽边界。",
        ),
    ),
    Metric(
        "groups/live_after/",
        "1",
        Text("Share of all groups still live after this filter.", "经过该过滤器后仍有差异的组的比例。"),
        "live groups after the filter / P",
        Text("not much below the stage before", "不应比上一级小很多"),
        Text(
            "A filter that drops the live share more than five-fold removes the signal itself.",
            "使比例下降五倍以上的过滤器删掉的正是信号。",
        ),
    ),
    Metric(
        "groups/all_best",
        "1",
        Text(
            "Share of groups where every sample has the step's best reward (too easy).",
            "全组都得到本步最高奖励的比例（太容易）。",
        ),
        "constant groups at the step's maximum / P",
        Text("0 to 0.5, rising as the task is learned", "0 至 0.5，随学习上升"),
        Text("High: harder prompts, or a pass-rate filter.", "过高：换更难的题，或用通过率过滤。"),
    ),
    Metric(
        "groups/all_worst",
        "1",
        Text(
            "Share of groups where every sample has the step's worst reward (too hard).",
            "全组都得到本步最低奖励的比例（太难）。",
        ),
        "constant groups at the step's minimum / P",
        Text("0 to 0.5, falling", "0 至 0.5，下降"),
        Text(
            "High: easier prompts, more samples a group, demonstrations first.",
            "过高：换更易的题、增大组，或先做示范训练。",
        ),
    ),
    Metric(
        "groups/own_past",
        "1",
        Text(
            "Share of groups compared with their prompt's own last rewards, this step's among them (advantage ="
            " history); the others with the batch.",
            "以提示自身最近的奖励（含本步）为基准的组的比例（advantage = history）；其余以整个批次为基准。",
        ),
        "groups whose prompt has history_least rewards / P",
        Text("1 once each prompt has come back", "每个提示重现后为 1"),
        Text(
            "Stays near 0: prompts hardly come back. Fewer prompts, a smaller history_least, or zscore.",
            "长期接近 0：提示很少重现。减少提示、调小 history_least，或用 zscore。",
        ),
    ),
)
