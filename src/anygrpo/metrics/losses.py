"""Metrics of what is differentiated: losses, gradients, the terms' weights, updates refused."""

from __future__ import annotations

from anygrpo.metrics.metric import Metric
from anygrpo.spoken import Text

METRICS: tuple[Metric, ...] = (
    Metric(
        "loss/total",
        "1",
        Text("What was differentiated.", "被求导的总损失。"),
        "sum of weighted terms",
        Text("near loss/policy; its size says nothing", "接近 loss/policy；大小无意义"),
        Text(
            "Not finite: see steps_refused. Compare gradients, not losses.",
            "非有限：看 steps_refused。比较梯度而非损失。",
        ),
    ),
    Metric(
        "loss/policy",
        "1",
        Text(
            "The surrogate's value. About 0 on policy, whatever the gradient: its size says nothing.",
            "策略代理损失的值。on-policy 时约为 0，与梯度大小无关。",
        ),
        "sum of weights x clipped surrogate",
        Text("near 0; look at grad_norm/policy", "接近 0；应看 grad_norm/policy"),
        Text(
            "0 exactly while groups are live: no advantage reaches the loss. Large: ratios far from 1; see "
            "log_ratio/abs_max.",
            "有有效组却恰为 0：优势未进入损失。很大：比值远离 1，看 log_ratio/abs_max。",
        ),
    ),
    Metric(
        "loss/kl",
        "1",
        Text("The KL term before its weight.", "未乘权重的 KL 项。"),
        "sum of weights x kl",
        Text("as kl/reference", "同 kl/reference"),
        Text("As for kl/reference.", "同 kl/reference。"),
    ),
    Metric(
        "loss/supervised",
        "1",
        Text("Supervised loss before its weight.", "未乘权重的监督损失。"),
        "cross-entropy, or the denoising loss: mean square error over valid dimensions",
        Text("falls", "下降"),
        Text(
            "Stands still: a higher rate or a larger model. Rises under GRPO: the policy leaves its "
            "demonstrations; raise lambda_supervised.",
            "不降：提高学习率或增大模型。GRPO 中上升：策略离开示范；增大 lambda_supervised。",
        ),
    ),
    Metric(
        "loss/consistency",
        "1",
        Text("Consistency loss before its weight.", "未乘权重的一致性损失。"),
        "the policy's own",
        Text("falls", "下降"),
        Text(
            "Stands still with a large weight: it fights the reward; lower lambda_consistency.",
            "权重大而不降：与奖励相争；降低 lambda_consistency。",
        ),
    ),
    Metric(
        "grad_norm/total",
        "1",
        Text("Norm of the whole gradient before clipping.", "裁剪前的总梯度范数。"),
        "sqrt of the sum over trained weights of g^2",
        Text(
            "steady; above 0 whenever groups/live is. Depends on the number of weights and, with a sum over D "
            "dimensions, on sqrt(D)",
            "平稳；只要有有效组就大于 0。取决于权重数；对 D 维求和时还随 sqrt(D) 增长",
        ),
        Text(
            "0 with live groups: log-probs detached or weights frozen. Spikes: lower grad_clip or the rate.",
            "有有效组却为 0：对数概率被 detach 或权重冻结；尖峰：降低 grad_clip 或学习率。",
        ),
    ),
    Metric(
        "grad_norm/",
        "1",
        Text(
            "Gradient norm of one weighted term alone, measured every few steps. Compare these, never loss values.",
            "单个加权项的梯度范数，每隔几步测一次。比较它们，而不是损失值。",
        ),
        "sqrt of the sum over trained weights of the term's g^2",
        Text("kl below policy", "kl 小于 policy"),
        Text(
            "grad_norm/kl above grad_norm/policy: the KL term leads; lower beta.",
            "grad_norm/kl 大于 grad_norm/policy：KL 主导，降低 beta。",
        ),
    ),
    Metric(
        "update/relative_norm",
        "1",
        Text("Size of the last weight change relative to the weights.", "最近一次权重变化相对权重的大小。"),
        "||after - before|| / ||before||",
        Text("1e-5 to 1e-3 (a LoRA whose second matrix starts at 0: more at first)", "1e-5 至 1e-3（LoRA 起步时更大）"),
        Text(
            "Above: lower the rate. Below: the rate is too low, or weights are frozen.",
            "过大：降低学习率。过小：学习率过低或权重被冻结。",
        ),
        low=1e-05,
        high=0.001,
    ),
    Metric(
        "lr",
        "1",
        Text("Learning rate of this step.", "本步学习率。"),
        "the schedule's value x the doctor's factor",
        Text("as the recipe says", "与配方一致"),
        Text("Not as planned: log.txt says what the doctor turned.", "与计划不符：log.txt 记录诊断器的调整。"),
    ),
    Metric(
        "beta",
        "1",
        Text("Weight of the KL term in this step.", "本步 KL 项权重。"),
        "the schedule's or controller's value x the doctor's factor",
        Text("as the recipe says", "与配方一致"),
        Text("Not as planned: log.txt says what the doctor turned.", "与计划不符：log.txt 记录诊断器的调整。"),
    ),
    Metric(
        "lambda/",
        "1",
        Text(
            "Weight of a term of the loss in this step: pg (the policy's own), supervised, consistency.",
            "本步损失各项的权重：pg（策略项）、supervised（监督项）、consistency（一致性项）；仅有 pg = 1 时不记录。",
        ),
        "the schedule's value",
        Text("as the recipe says", "与配方一致"),
        Text(
            "Not as planned: a schedule runs over its stage, not over the run.",
            "与计划不符：调度覆盖所在阶段，而非整个运行。",
        ),
    ),
    Metric(
        "reward/running_mean",
        "reward",
        Text(
            "Moving mean of all rewards that the advantages are taken from (advantage = running).",
            "优势所用的奖励滑动均值（advantage = running）。",
        ),
        "exponential moving average with bias correction, this step included",
        Text("follows reward/mean", "跟随 reward/mean"),
        Text("Far from it: running_decay is too near 1.", "相差很大：running_decay 过于接近 1。"),
    ),
    Metric(
        "reward/running_std",
        "reward",
        Text("Moving standard deviation that they are divided by.", "优势所除的滑动标准差。"),
        "square root of the moving variance over all prompts",
        Text("near reward/std; not much above reward/std_within", "接近 reward/std；不应远大于 reward/std_within"),
        Text(
            "Far above reward/std_within: difficulty drowns the choice inside groups; advantage = zscore.",
            "远大于 reward/std_within：难度淹没组内选择；改用 advantage = zscore。",
        ),
        low=0.0,
    ),
    Metric(
        "guarded",
        "decisions",
        Text("Decisions left out by the overflow guard of the ratio.", "因溢出保护被剔除的决策数。"),
        "count of decisions with a log-ratio above 20",
        Text("0", "0"),
        Text(
            "Above 0: the log-ratio itself is wrong; `anygrpo check` for parity.",
            "大于 0：对数比本身有误；用 `anygrpo check` 检查一致性。",
        ),
        high=0.0,
    ),
    Metric(
        "steps_refused",
        "steps",
        Text("Updates refused so far: their gradient was not finite.", "至今因梯度非有限而拒绝的更新数。"),
        "count of updates",
        Text("0", "0"),
        Text(
            "Above 0: look at the samples of that step and at the reward's range.", "大于 0：查看该步样本与奖励范围。"
        ),
        high=0.0,
    ),
    Metric(
        "loss_scale",
        "1",
        Text(
            "Power of two that the loss is multiplied by where gradients pass through float16.",
            "梯度经过 float16 时损失所乘的 2 的幂。",
        ),
        "a 16th after an overflow, twice after 500 sound updates",
        Text("256 to 16,777,216", "256 到 16,777,216"),
        Text(
            "1 for long: gradients overflow float16 at any factor: dtype = float32 or bfloat16.",
            "长期为 1：任何倍数下梯度都超出 float16 的范围；改用 dtype = float32 或 bfloat16。",
        ),
        low=2.0,
    ),
)
