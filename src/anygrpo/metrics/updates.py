"""Metrics of how far updates go: ratios, clips, KL, entropy."""

from __future__ import annotations

from anygrpo.metrics.metric import Metric
from anygrpo.spoken import Text

METRICS: tuple[Metric, ...] = (
    Metric(
        "ratio/mean",
        "1",
        Text(
            "Mean probability ratio of new to behaviour policy, per decision.",
            "新策略与行为策略的概率比（每个决策）的平均值。",
        ),
        "mean exp(new - old)",
        Text("0.95 to 1.05; exactly 1 with one update a rollout", "0.95 至 1.05；每次采样只更新一次时恰为 1"),
        Text(
            "Away from 1 before any update: sampler and scorer disagree (settings, dropout, mode). Else lower "
            "the rate.",
            "未更新就偏离 1：采样与打分不一致（设置、dropout、模式）；否则降低学习率。",
        ),
        low=0.95,
        high=1.05,
    ),
    Metric(
        "ratio/max",
        "1",
        Text("Largest ratio.", "最大概率比。"),
        "max over decisions of exp(new - old)",
        Text(
            "below 10; in units that depend on the event reduction (a sum over D dimensions grows with sqrt(D))",
            "小于 10；量纲取决于归约方式（对 D 维求和随 sqrt(D) 增长）",
        ),
        Text(
            "Above: lower the rate or the inner updates; before any update: sampler and scorer disagree.",
            "过大：降低学习率或减少内层更新；未更新即过大：采样与打分不一致。",
        ),
        high=10.0,
    ),
    Metric(
        "log_ratio/mean",
        "nats",
        Text(
            "Mean log-ratio to the behaviour policy; minus a k1 estimate of the KL.",
            "与行为策略的平均对数比；是 KL 的 k1 估计的负值。",
        ),
        "mean (new - old)",
        Text(
            "-0.05 to 0.05; per decision: a sum over D dimensions has a mean of -D d^2 / 2, their mean -d^2 / "
            "2, the centred one 0",
            "-0.05 至 0.05；按决策计：对 D 维求和均值为 -D d^2/2，取平均为 -d^2/2，中心化为 0",
        ),
        Text(
            "Below: inner updates go far; lower the rate. Far below before any update: parity (`anygrpo check`).",
            "偏低：内层更新走得远，降低学习率。未更新就远低：一致性问题（`anygrpo check`）。",
        ),
        low=-0.05,
        high=0.05,
    ),
    Metric(
        "log_ratio/abs_max",
        "nats",
        Text(
            "Largest absolute log-ratio of a single decision, to the behaviour policy.",
            "单个决策与行为策略的最大绝对对数比。",
        ),
        "max |new - old|",
        Text(
            "below 5, per decision. Depends on dimension: over D dimensions of shift d its size is d sqrt(D) "
            "summed, d / sqrt(D) as a mean, d centred",
            "每个决策小于 5。取决于维数：D 维、位移 d 时，求和约 d sqrt(D)，取平均约 d/sqrt(D)，中心化约 d",
        ),
        Text(
            "5 to 10: lower the rate; 10 to 20: and narrow the clip; above 20: stop and go back to a checkpoint.",
            "5–10：降学习率；10–20：再收窄 clip；20 以上：停止并回退到检查点。",
        ),
        high=5.0,
    ),
    Metric(
        "clip/low",
        "1",
        Text(
            "Share of decisions whose ratio fell below 1 - clip_low with a negative advantage: no gradient there.",
            "比值低于 1-clip_low 且优势为负的决策比例：此处无梯度。",
        ),
        "decisions cut below / all unmasked decisions",
        Text(
            "0 to 0.2; the clip's width is in units of the event reduction (docs/motion.md)",
            "0 至 0.2；clip 宽度的量纲取决于归约方式（docs/motion.md）",
        ),
        Text("Above: fewer inner updates or a lower rate.", "过高：减少内层更新或降低学习率。"),
        low=0.0,
        high=0.2,
    ),
    Metric(
        "clip/high",
        "1",
        Text(
            "Share of decisions whose ratio rose above 1 + clip_high with a positive advantage: no gradient there.",
            "比值高于 1+clip_high 且优势为正的决策比例：此处无梯度。",
        ),
        "decisions cut above / all unmasked decisions",
        Text("0 to 0.2; 0 always with one update a rollout", "0 至 0.2；每次采样只更新一次时恒为 0"),
        Text(
            "Above: fewer inner updates or a lower rate. Always 0 while clip/low is not: a left-shifted ratio "
            '(event_reduction = "mean").',
            '过高：减少内层更新或降低学习率。恒为 0 而 clip/low 不为 0：比值左移（event_reduction = "mean"）。',
        ),
        low=0.0,
        high=0.2,
    ),
    Metric(
        "clip/dual",
        "1",
        Text(
            "Share of decisions with a negative advantage whose loss the dual clip limits (logged where "
            "dual_clip is set).",
            "优势为负、损失被 dual clip 限制的决策比例（仅在设置 dual_clip 时记录）。",
        ),
        "decisions limited by dual_clip / all unmasked decisions",
        Text(
            "0 to 0.05: their ratio is above dual_clip, which on-policy samples never reach",
            "0 至 0.05：其比值超过 dual_clip，同策略样本不会达到",
        ),
        Text(
            "Above: samples are far from the policy: fewer inner updates or a lower rate.",
            "过高：样本离策略太远：减少内层更新或降低学习率。",
        ),
        low=0.0,
        high=0.05,
    ),
    Metric(
        "kl/behaviour",
        "nats",
        Text(
            "KL estimate to the policy that sampled: how far the inner updates went.",
            "与采样策略的 KL 估计：内层更新走了多远。",
        ),
        "mean (ratio - 1 - log ratio)",
        Text(
            "below 0.05 per decision. Depends on dimension: summed D d^2 / 2, as a mean d^2 / (2 D), centred d^2 / 2",
            "每个决策小于 0.05。取决于维数：求和 D d^2/2，取平均 d^2/(2D)，中心化 d^2/2",
        ),
        Text(
            "Above: fewer inner updates, a lower rate, or target_kl.",
            "过高：减少内层更新、降低学习率，或设 target_kl。",
        ),
        high=0.05,
    ),
    Metric(
        "kl/reference",
        "nats",
        Text(
            "KL to the frozen reference, per decision (the estimator the recipe names, or exact).",
            "与冻结参考策略的 KL（每个决策；按配方的估计器或精确值）。",
        ),
        "k1 = new - ref; k3 = exp(ref - new) - (ref - new) - 1; exact where the policy can",
        Text(
            "starts at 0 and rises slowly; 0.001 to 0.5 per decision. Depends on dimension: a denoising step's "
            "is per dimension (d^2 / 2) with the mean and centred reductions, D times that with the sum",
            "从 0 开始缓慢上升；每个决策 0.001 至 0.5。取决于维数：去噪步在 mean、centred 下按维（d^2/2），在 "
            "sum 下乘以 D",
        ),
        Text(
            "Not 0 before the first update: the reference is not the start. Jumps: rate too high. Flat 0: "
            "nothing moves.",
            "首次更新前不为 0：参考不是起点；突跳：学习率过高；一直为 0：策略没动。",
        ),
        high=0.5,
    ),
    Metric(
        "entropy",
        "nats",
        Text("Mean entropy of a decision's distribution.", "每个决策分布的平均熵。"),
        "mean of -sum p log p with an entropy term; else mean of -log p of what was sampled, the same in expectation",
        Text(
            "falls slowly; not below a tenth of its start while reward stands still",
            "缓慢下降；奖励不动时不应低于起点的十分之一",
        ),
        Text(
            "Collapsing: higher clip_high, temperature, or an entropy term. Exploding: remove the entropy term.",
            "坍缩：提高 clip_high、温度或加熵项；爆炸：去掉熵项。",
        ),
    ),
)
