"""Metrics of samples, held-out evaluation, time and memory."""

from __future__ import annotations

from anygrpo.metrics.base import Metric

METRICS: tuple[Metric, ...] = (
    Metric("length/mean", "decisions", "Mean number of decisions of a sample.", "样本的平均决策数。"),
    Metric("length/max", "decisions", "Longest sample.", "最长样本。"),
    Metric("length/min", "decisions", "Shortest sample.", "最短样本。"),
    Metric(
        "truncated/share",
        "1",
        "Share of samples cut off at the limit.",
        "被长度上限截断的样本比例。",
        "",
        "below 0.05",
        "小于 0.05",
        "Above 0.15: raise the limit, or mask cut-off samples (overlong_mask).",
        "大于 0.15：提高上限，或屏蔽被截断样本（overlong_mask）。",
        high=0.05,
    ),
    Metric(
        "invalid/share",
        "1",
        "Share of samples that could not be scored (None, NaN, exception, time-out).",
        "无法打分的样本比例（None、NaN、异常、超时）。",
        "",
        "0",
        "0",
        "Reasons stand beside it (invalid/...) and in log.txt.",
        "原因见 invalid/… 与 log.txt。",
        high=0.01,
    ),
    Metric("invalid/", "1", "Share of samples invalid for this reason.", "因该原因无效的样本比例。"),
    Metric("samples/seen", "samples", "Samples drawn so far.", "至今采样总数。"),
    Metric(
        "eval/reward",
        "reward",
        "Mean reward of deterministic answers to held-out prompts.",
        "留出题目上确定性回答的平均奖励。",
    ),
    Metric("eval/reward_se", "reward", "Its standard error over prompts.", "其在题目间的标准误。", "std / sqrt(n)"),
    Metric("eval/accuracy", "1", "Share of held-out prompts answered correctly.", "留出题目的正确率。"),
    Metric(
        "eval/pass_at_",
        "1",
        "Share of held-out prompts where at least one of k samples succeeds.",
        "k 次采样至少一次成功的题目比例。",
    ),
    Metric("eval/prompts", "prompts", "Held-out prompts used.", "所用留出题目数。"),
    Metric("eval/invalid", "1", "Share of held-out answers that could not be scored.", "无法打分的留出回答比例。"),
    Metric("eval/", "1", "A further held-out measure of the task.", "任务的其他留出指标。"),
    Metric("time/", "s", "Seconds of one phase of the step.", "本步某阶段的秒数。"),
    Metric(
        "throughput/decisions_per_s", "1/s", "Decisions sampled and trained on per second.", "每秒采样并训练的决策数。"
    ),
    Metric("throughput/", "1/s", "A rate.", "速率。"),
    Metric(
        "memory/peak_gb",
        "GiB",
        "Peak memory of the process (of the GPU where there is one).",
        "进程峰值内存（有 GPU 时为显存）。",
    ),
)
