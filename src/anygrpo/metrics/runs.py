"""Metrics of samples, held-out evaluation, time and memory."""

from __future__ import annotations

from anygrpo.metrics.metric import Metric
from anygrpo.spoken import Text

METRICS: tuple[Metric, ...] = (
    Metric(
        "length/mean",
        "decisions",
        Text("Mean number of decisions of a sample.", "样本的平均决策数。"),
        "mean over samples of unmasked decisions",
        Text("constant for policies of fixed length; else steady", "定长策略恒定；否则平稳"),
        Text(
            "Grows without reward: a length bias; use a length-free reduction or an overlong buffer.",
            "增长而奖励不升：长度偏差；换与长度无关的归约或超长缓冲。",
        ),
    ),
    Metric(
        "length/max",
        "decisions",
        Text("Longest sample.", "最长样本。"),
        "max over samples",
        Text("below the limit", "小于上限"),
        Text("At the limit: see truncated/share.", "达到上限：看 truncated/share。"),
    ),
    Metric(
        "length/min",
        "decisions",
        Text("Shortest sample.", "最短样本。"),
        "min over samples",
        Text("above 0", "大于 0"),
        Text("0: empty answers; the reward or the stop rule favours them.", "为 0：空回答；奖励或停止规则偏向它。"),
    ),
    Metric(
        "truncated/share",
        "1",
        Text("Share of samples cut off at the limit.", "被长度上限截断的样本比例。"),
        "1 - mean over samples of ended",
        Text("below 0.05", "小于 0.05"),
        Text(
            "Above 0.15: raise the limit, or mask cut-off samples (overlong_mask).",
            "大于 0.15：提高上限，或屏蔽被截断样本（overlong_mask）。",
        ),
        high=0.05,
    ),
    Metric(
        "invalid/share",
        "1",
        Text(
            "Share of samples that could not be scored (None, NaN, exception, time-out).",
            "无法打分的样本比例（None、NaN、异常、超时）。",
        ),
        "1 - mean over samples of valid",
        Text("0", "0"),
        Text("Reasons stand beside it (invalid/...) and in log.txt.", "原因见 invalid/… 与 log.txt。"),
        high=0.01,
    ),
    Metric(
        "invalid/",
        "1",
        Text("Share of samples invalid for this reason.", "因该原因无效的样本比例。"),
        "invalid samples with this reason / all samples",
        Text("0", "0"),
        Text("log.txt names the samples; mend the reward or the task.", "log.txt 列出样本；修正奖励或任务。"),
    ),
    Metric(
        "samples/seen",
        "samples",
        Text(
            "Samples learnt from so far; with policy.reuse old selections count again each time.",
            "至今用于学习的样本总数；使用 policy.reuse 时，旧的选择每次都再计一次。",
        ),
        "sum over steps of P x G",
        Text("grows by P x G a step", "每步增加 P×G"),
        Text("Compare runs at equal samples, not at equal steps.", "按相同样本数而非步数比较运行。"),
    ),
    Metric(
        "eval/reward",
        "reward",
        Text("Mean reward of deterministic answers to held-out prompts.", "留出提示上确定性回答的平均奖励。"),
        "mean over held-out prompts",
        Text(
            "rises, by more than 2 eval/reward_se; see also the paired change",
            "上升超过 2 倍 eval/reward_se；另看配对变化",
        ),
        Text(
            "Falls while reward/mean rises: overfitting or an exploited reward; stop earlier, raise beta.",
            "reward/mean 升而它降：过拟合或奖励被作弊利用；提前停止、增大 beta。",
        ),
    ),
    Metric(
        "eval/reward_se",
        "reward",
        Text("Its standard error over prompts.", "其在提示间的标准误。"),
        "std / sqrt(n)",
        Text("small beside the rise looked for", "远小于期待的提升"),
        Text("Too large: more held-out prompts.", "过大：增加留出提示。"),
    ),
    Metric(
        "eval/accuracy",
        "1",
        Text("Share of held-out prompts answered correctly.", "留出提示的正确率。"),
        "correct answers / held-out prompts",
        Text("rises with eval/reward", "与 eval/reward 同升"),
        Text(
            "The reward rises and this does not: the reward pays for something else.",
            "奖励升而它不升：奖励奖的是别的东西。",
        ),
    ),
    Metric(
        "eval/pass_at_",
        "1",
        Text("Share of held-out prompts where at least one of k samples succeeds.", "k 次采样至少一次成功的提示比例。"),
        "prompts with a success among k samples / prompts",
        Text("at least eval/accuracy; does not fall", "不低于 eval/accuracy；不下降"),
        Text(
            "Falls while accuracy rises: diversity is lost; entropy, clip_high, or pass@k advantages.",
            "准确率升而它降：多样性丧失；加熵、提高 clip_high 或用 pass@k 优势。",
        ),
    ),
    Metric(
        "eval/prompts",
        "prompts",
        Text("Held-out prompts used.", "所用留出提示数。"),
        "count",
        Text("constant within a run", "运行中不变"),
        Text("A change makes evaluations incomparable.", "变化则各次评估不可比。"),
    ),
    Metric(
        "eval/reward_valid",
        "reward",
        Text(
            "Mean reward of the held-out answers that could be scored; eval/reward counts the others as the lowest.",
            "仅统计能够评分的留出回答的平均奖励；eval/reward 把无法评分的回答计为最低分。",
        ),
        "mean over valid greedy answers",
        Text("equal to eval/reward where nothing is invalid", "没有无效样本时等于 eval/reward"),
        Text(
            "Above eval/reward: see eval/invalid; never choose a checkpoint by this one.",
            "高于 eval/reward 时看 eval/invalid；不要用它选检查点。",
        ),
    ),
    Metric(
        "eval/faults",
        "1",
        Text(
            "Share of held-out answers that went unscored though not at fault: a machine, tool or endpoint "
            "failed twice.",
            "并非回答本身的原因而未评分的留出回答比例：机器、工具或接口两次失败。",
        ),
        "faults / prompts",
        Text("0", "0"),
        Text(
            "Above 0.01 no best checkpoint is chosen and comparisons are refused; mend the machine or endpoint.",
            "超过 0.01 时不选最佳检查点，也拒绝比较；请修复机器或接口。",
        ),
    ),
    Metric(
        "eval/invalid",
        "1",
        Text("Share of held-out answers that could not be scored.", "无法打分的留出回答比例。"),
        "held-out answers without a score / prompts",
        Text("0", "0"),
        Text("The reasons are those of invalid/; mend the reward or the task.", "原因同 invalid/；修正奖励或任务。"),
    ),
    Metric(
        "eval/",
        "1",
        Text("A further held-out measure of the task.", "任务的其他留出指标。"),
        "the task's own",
        Text("the task's documentation says", "见任务文档"),
        Text("See the task's page in docs/.", "见 docs/ 中该任务的页面。"),
    ),
    Metric(
        "time/",
        "s",
        Text("Seconds of one phase of the step.", "本步某阶段的秒数。"),
        "wall-clock seconds",
        Text("steady; depends on the machine and on lengths", "平稳；取决于机器与长度"),
        Text(
            "The largest phase is the one to make faster: docs/performance.md.",
            "最大的阶段最值得加速：docs/performance.md。",
        ),
    ),
    Metric(
        "throughput/decisions_per_s",
        "1/s",
        Text("Decisions sampled and trained on per second.", "每秒采样并训练的决策数。"),
        "unmasked decisions of the step / time/step",
        Text("steady; depends on the machine", "平稳；取决于机器"),
        Text("Falls: longer samples, a busy machine, or memory that swaps.", "下降：样本变长、机器繁忙或内存换页。"),
    ),
    Metric(
        "throughput/",
        "1/s",
        Text("A rate.", "速率。"),
        "count / seconds",
        Text("steady", "平稳"),
        Text("Falls: look at time/.", "下降：看 time/。"),
    ),
    Metric(
        "memory/peak_gb",
        "GiB",
        Text(
            "Peak memory: of the GPU that the policy is on, else of the process.",
            "峰值内存：策略在 GPU 上时为显存，否则为进程内存。",
        ),
        "largest allocation so far / 2^30",
        Text("below the machine's memory; steady after the first steps", "小于机器内存；前几步后平稳"),
        Text(
            "Near the limit: fewer rows_per_block, a smaller time_chunk, gradient checkpointing.",
            "接近上限：减小 rows_per_block、time_chunk，或用梯度检查点。",
        ),
    ),
)
