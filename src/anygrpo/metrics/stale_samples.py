"""Metrics of samples that are not the present policy's own: stale ones, and those of another engine."""

from __future__ import annotations

from anygrpo.metrics.metric import Metric
from anygrpo.spoken import Text

METRICS: tuple[Metric, ...] = (
    Metric(
        "staleness",
        "updates",
        Text(
            "Mean age of the samples trained on: updates made since the weights that drew them.",
            "所训练样本的平均陈旧度：自采样权重以来的更新次数。",
        ),
        "mean over decisions of (updates made - version that drew it)",
        Text(
            "0 at a stage's first step, then epochs x minibatches (off_policy_steps = 1), or up to max_staleness",
            "阶段首步为 0，之后为 epochs × minibatches（off_policy_steps = 1），或不超过 max_staleness",
        ),
        Text(
            "Learning worse than with off_policy_steps = 0: fewer inner updates, or importance = truncate.",
            "若不如 off_policy_steps = 0：减少内层更新，或设 importance = truncate。",
        ),
    ),
    Metric(
        "staleness/max",
        "updates",
        Text(
            "Age of the oldest decision trained on (training.max_staleness).",
            "所训练决策中最旧者的陈旧度（training.max_staleness）。",
        ),
        "max over decisions of (updates made - version that drew it)",
        Text("never above max_staleness", "绝不超过 max_staleness"),
        Text(
            "0 throughout: nothing is sampled ahead; see queue/finished.", "一直为 0：没有提前采样；见 queue/finished。"
        ),
    ),
    Metric(
        "staleness/mixed",
        "1",
        Text("Share of samples whose weights changed while they were sampled.", "采样途中权重发生更换的样本比例。"),
        "mean over samples of [decisions of more than one version]",
        Text("0 to 1; each decision keeps the log-prob it was drawn with", "0 至 1；每个决策保留其采样时的对数概率"),
        Text(
            "Learning worse where it is high: importance = truncate, or a smaller max_staleness.",
            "若偏高且学得更差：设 importance = truncate，或减小 max_staleness。",
        ),
    ),
    Metric(
        "queue/finished",
        "groups",
        Text(
            "Groups that were finished and not too old when the step began (training.max_staleness).",
            "步骤开始时已完成且未过旧的组数（training.max_staleness）。",
        ),
        "count before the step takes its own",
        Text(
            "prompts_per_step or more; less: the trainer waits (time/wait)",
            "不少于 prompts_per_step；更少则训练端在等待（time/wait）",
        ),
        Text(
            "Near 0: sampling is the slower side; a larger max_staleness lets more groups be under way.",
            "接近 0：采样端较慢；增大 max_staleness 可让更多组同时进行。",
        ),
    ),
    Metric(
        "queue/under_way",
        "groups",
        Text("Groups begun and not finished once the step has its own.", "本步取走所需组后，已开始而未完成的组数。"),
        "count",
        Text(
            "at most prompts_per_step x max_staleness / updates a step",
            "至多 prompts_per_step × max_staleness ÷ 每步更新数",
        ),
        Text(
            "Constant and high: some never finish; look at tools and rewards that wait for their time-out.",
            "一直偏高：有的组总不完成；查看等到超时的工具和奖励。",
        ),
    ),
    Metric(
        "queue/dropped",
        "groups",
        Text(
            "Groups finished too late: older than max_staleness, and not trained on.",
            "完成得太晚、超过 max_staleness 而未用于训练的组数。",
        ),
        "count of the step",
        Text("0", "0"),
        Text(
            "Above 0: what takes long to answer is learnt from less often; raise max_staleness or shorten tools' time.",
            "大于 0：耗时长的回答较少被学习；增大 max_staleness，或缩短工具时间。",
        ),
    ),
    Metric(
        "mismatch/ratio_mean",
        "1",
        Text(
            "Mean ratio of the policy before the update to the behaviour policy that sampled, before the cap.",
            "更新前策略与实际采样策略的概率比平均值（截断前）。",
        ),
        "mean exp(old - behaviour); by sequence: of the products",
        Text("0.95 to 1.05", "0.95 至 1.05"),
        Text(
            "Away from 1 at staleness 0: temperature, top-p or precision differ between sampler and trainer.",
            "陈旧度为 0 时偏离 1：采样与训练的温度、top-p 或精度不同。",
        ),
        low=0.95,
        high=1.05,
    ),
    Metric(
        "mismatch/ratio_max",
        "1",
        Text("Largest of these ratios.", "其中最大的概率比。"),
        "max exp(old - behaviour)",
        Text("below 10", "小于 10"),
        Text(
            "Above, with mismatch/truncated near 0: single decisions, held by the cap. Both high: see "
            "mismatch/ratio_mean.",
            "过大而 mismatch/truncated 近 0：个别决策，截断可控；两者皆大：见 mismatch/ratio_mean。",
        ),
        high=10.0,
    ),
    Metric(
        "mismatch/ess",
        "1",
        Text(
            "Effective sample size of these ratios, as a share of the decisions.",
            "这些概率比的有效样本量占决策数的比例。",
        ),
        "(sum r)^2 / (n sum r^2)",
        Text("above 0.9; by sequence it falls with the length", "大于 0.9；按序列计时随长度下降"),
        Text(
            "Below 0.3: most of the batch counts for nothing; sample with newer weights, or importance_level = "
            "decision.",
            "低于 0.3：大部分样本几乎无效；用更新的权重采样，或 importance_level = decision。",
        ),
        low=0.3,
    ),
    Metric(
        "mismatch/log_prob",
        "nats",
        Text(
            "Mean absolute difference of log-probs between the policy before the update and the sampler.",
            "更新前策略与采样器对数概率之差的平均绝对值。",
        ),
        "mean |old - behaviour|",
        Text(
            "below 0.01 at staleness 0 (bfloat16), below 0.1 one step off",
            "陈旧度为 0 时小于 0.01（bfloat16），落后一步时小于 0.1",
        ),
        Text("Rising with the updates: the engine may hold old weights.", "随更新升高：引擎可能持有旧权重。"),
        high=0.1,
    ),
    Metric(
        "mismatch/truncated",
        "1",
        Text("Share of decisions whose ratio is above importance_cap.", "概率比超过 importance_cap 的决策比例。"),
        "mean [r > cap]",
        Text("below 0.01", "小于 0.01"),
        Text(
            "Above 0.05: the correction is biased; find what differs before raising the cap.",
            "大于 0.05：校正有偏；先查明差异，再考虑提高上限。",
        ),
        high=0.05,
    ),
    Metric(
        "kl/rollout",
        "nats",
        Text(
            "KL of the behaviour policy that sampled to the policy before the update, per decision.",
            "实际采样策略到更新前策略的 KL（每个决策）。",
        ),
        "mean (r - 1 - log r), r = exp(old - behaviour)",
        Text(
            "below 0.01; above 0.1 sampler and trainer are two policies",
            "小于 0.01；大于 0.1 说明采样与训练已是两个策略",
        ),
        Text(
            "Above from the first row: settings or precision. Growing: a smaller learning rate, or "
            "off_policy_steps = 0.",
            "首行就高：设置或精度问题；逐渐升高：降低学习率，或 off_policy_steps = 0。",
        ),
        high=0.1,
    ),
    Metric(
        "parity/abs_max",
        "nats",
        Text(
            "Largest difference between the sampler's log-probs and the training pass's, for the same weights.",
            "同一权重下采样器与训练前向的对数概率最大差。",
        ),
        "max |training pass - sampler| over sampled tokens",
        Text("below 0.001 in float32; about 0.2 in bfloat16", "float32 小于 0.001；bfloat16 约 0.2"),
        Text(
            "Above 1: sampler and scorer are two distributions (`anygrpo check`).",
            "大于 1：采样与打分是两个分布（`anygrpo check`）。",
        ),
        high=1.0,
    ),
)
