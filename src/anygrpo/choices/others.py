"""Cards of KL estimators, reductions, filters, schedules, controllers and corrections."""

from __future__ import annotations

from anygrpo.choices.card import Card
from anygrpo.spoken import Text

_KL = ("kl/reference", "loss/kl")
_ONE = "sg(new / old x d) grad log new, whatever the kind"

ESTIMATORS = (
    Card(
        "kl", "k1", "anygrpo.algorithm.kl:sampled_k1", f"d = log new - log ref; gradient {_ONE}",
        Text("The log-ratio itself: unbiased, of either sign.", "对数概率比本身：无偏，可正可负。"),
        "Schulman 2020", ("beta",), metrics=_KL,
    ),
    Card(
        "kl", "k2", "anygrpo.algorithm.kl:sampled_k2", f"d^2 / 2; gradient {_ONE}",
        Text("Half its square: never negative, biased far from the reference.",
        "平方的一半：非负，远离参考策略时有偏。"),
        "Schulman 2020", ("beta",), metrics=_KL,
    ),
    Card(
        "kl", "k3", "anygrpo.algorithm.kl:sampled_k3", f"exp(-d) - 1 + d; gradient {_ONE}",
        Text("Unbiased and never negative.", "无偏且非负。"),
        "Schulman 2020", ("beta",), metrics=_KL,
    ),
    Card(
        "kl", "exact", "anygrpo.algorithm.kl:exact", "the policy's own KL of each decision's distribution",
        Text("No estimate: computed by the policy over all it could have chosen.",
        "不估计：由策略在其全部可选动作上精确计算。"),
        "", ("beta",), metrics=_KL,
    ),
)  # fmt: skip

REDUCTIONS = (
    Card(
        "reduction", "token_mean", "anygrpo.algorithm.weights:token_mean", "1 / decisions of the step",
        Text("Every decision weighs the same: long samples weigh more.", "每个决策权重相同：长样本权重更大。"),
        "DAPO, 2503.14476",
    ),
    Card(
        "reduction", "sequence_mean", "anygrpo.algorithm.weights:sequence_mean",
        "1 / (rows with a decision x own length)",
        Text("Every sample weighs the same: a decision of a long one weighs less.",
        "每个样本权重相同：长样本中每个决策权重更小。"),
        "GRPO, 2402.03300",
    ),
    Card(
        "reduction", "prompt_mean", "anygrpo.algorithm.weights:prompt_mean",
        "1 / (prompts x decisions of own prompt)",
        Text("Every prompt weighs the same.", "每个提示权重相同。"), "ScaleRL, 2510.13786", by_prompt=True,
    ),
    Card(
        "reduction", "constant", "anygrpo.algorithm.weights:constant", "1 / (valid rows x horizon)",
        Text("Divided by a fixed length (max_new_tokens, or `horizon`): no sample's length changes a weight.",
        "除以固定长度（max_new_tokens 或 horizon）：样本长度不改变权重。"),
        "Dr. GRPO, 2503.20783", ("horizon",),
    ),
)  # fmt: skip

FILTERS = (
    Card(
        "filter", "drop_constant", "anygrpo.algorithm.filters:drop_constant",
        "groups with spread",
        Text("Names groups without reward spread: skipped only where their gradient is exactly 0, and replaced "
        "by `refill`; "
        "no weight or statistic changes.",
        "标出奖励无差异的组：仅在其梯度恰为 0 时跳过，并由 refill 替换；不改变任何权重和统计量。"),
        "DAPO, 2503.14476", (), neutral=True,
    ),
    Card(
        "filter", "pass_rate_band", "anygrpo.algorithm.filters:pass_rate_band",
        "groups whose share of rewards >= threshold is in [low, high]",
        Text("Keeps prompts that are neither too easy nor too hard.", "只保留难度适中的提示。"),
        "", ("low", "high", "threshold"),
    ),
    Card(
        "filter", "component_at_least", "anygrpo.algorithm.filters:component_at_least",
        "groups with a sample whose reward *part* reaches threshold",
        Text("Keeps groups where some sample reaches a value in one part of the reward.",
        "只保留某个奖励分量至少有一个样本达到阈值的组。"), "", ("component", "threshold"),
    ),
    Card(
        "filter", "minimum_spread", "anygrpo.algorithm.filters:minimum_spread",
        "groups with max - min >= spread",
        Text("Drops groups whose differences are noise that a normaliser would scale up.",
        "去掉差异只是噪声、却会被归一化放大的组。"), "", ("spread",),
    ),
    Card(
        "filter", "top_k_by_reward", "anygrpo.algorithm.filters:top_k_by_reward",
        "the k best samples of each group",
        Text("Learns from each group's best samples; makes groups more alike.",
        "只用每组最好的 k 个样本；组内差异会变小。"),
        "", ("k",),
    ),
    Card(
        "filter", "best_and_worst", "anygrpo.algorithm.filters:best_and_worst",
        "the k best and the k worst samples of each group",
        Text("Draws many, trains on those with most to say.", "多抽样，只训练最好和最差的 k 个。"),
        "best-of-N of DanceGRPO, 2505.07818", ("k",),
    ),
    Card(
        "filter", "overlong_mask", "anygrpo.algorithm.filters:overlong_mask",
        "samples that finished by themselves",
        Text("Samples cut off at the limit teach nothing.", "到长度上限被截断的样本不参与学习。"), "DAPO, 2503.14476",
    ),
)  # fmt: skip

_ENDS = ("start", "end", "warmup", "steps")
_S = "anygrpo.algorithm.schedules:"
SCHEDULES = (
    Card("schedule", "constant", f"{_S}value_at", "start", Text("Stays, after warm-up.", "预热后不变。"),
         "", ("start", "warmup")),
    Card("schedule", "linear", f"{_S}_linear", "start + (end - start) p",
    Text("A straight line.", "直线变化。"), "", _ENDS),
    Card("schedule", "cosine", f"{_S}_cosine", "end + (start - end) (1 + cos(pi p)) / 2",
         Text("Slow at both ends.", "两端缓慢的余弦变化。"), "Loshchilov & Hutter, 1608.03983", _ENDS),
    Card("schedule", "exponential", f"{_S}_exponential", "start (end / start)^p",
         Text("The same factor every step; neither end may be 0.", "每步乘同一系数；两端都不能为 0。"), "", _ENDS),
    Card("schedule", "step", f"{_S}value_at", "start x factor^(milestones reached)",
         Text("Falls at the named steps.", "在指定的步数处下降。"), "", ("start", "warmup", "milestones", "factor")),
)  # fmt: skip

_LIMITS = {"minimum": "beta_min", "maximum": "beta_max"}
CONTROLLERS = (
    Card(
        "controller", "fixed", "anygrpo.algorithm.kl:FixedKL", "beta",
        Text("The weight of the recipe or its schedule.",
        "使用配方或其调度给出的系数。"), "", ("beta",), metrics=("beta",),
    ),
    Card(
        "controller", "proportional", "anygrpo.algorithm.kl:AdaptiveKL",
        "beta x (1 + clip(kl/target - 1, +-.2) min(samples/horizon, 1))",
        Text("Moves the weight in proportion to the KL's distance from its target.",
        "按 KL 与目标的差距成比例地调整系数。"),
        "Ziegler et al., 1909.08593", ("beta", "kl_target", "kl_horizon", "beta_min", "beta_max"),
        {"target": "kl_target", "horizon": "kl_horizon", **_LIMITS}, metrics=("beta",),
    ),
    Card(
        "controller", "band", "anygrpo.algorithm.kl:BandKL", "beta x or / factor outside [low, high]",
        Text("Leaves the weight alone while the KL stays inside a band.", "KL 在区间内时不动，超出时乘除固定系数。"),
        "", ("beta", "kl_low", "kl_high", "kl_factor", "beta_min", "beta_max"),
        {"low": "kl_low", "high": "kl_high", "factor": "kl_factor", **_LIMITS}, metrics=("beta",),
    ),
)  # fmt: skip

CREDITS = (
    Card(
        "credit", "outcome", "anygrpo.algorithm.credit:outcome", "A(sum of all turns' rewards), for every decision",
        Text("Every decision has its sample's advantage.", "每个决策都用其样本的优势。"), "GRPO, 2402.03300, 4.1.2",
    ),
    Card(
        "credit", "turns", "anygrpo.algorithm.credit:turns",
        "A(sum over j >= k of discount^(j - k) r_j) among the group's samples at turn k",
        Text("A turn has what was earned from it on, compared with the same turn of the group's other samples.",
        "每轮用从该轮起的（折扣）奖励和，与组内其他样本的同一轮比较。"),
        "Williams 1992; turn by turn as in 2505.11821", ("discount",),
    ),
    Card(
        "credit", "process", "anygrpo.algorithm.credit:process",
        "sum over j >= k of discount^(j - k) A(r_j), A among all turns of the group",
        Text("Rewards of all turns are compared, and a turn has its own and those to come.",
        "组内所有轮的奖励一起比较，每轮取自身及之后各轮之和。"),
        "GRPO, 2402.03300, 4.1.3", ("discount",),
    ),
    Card(
        "credit", "parts", "anygrpo.algorithm.credit:parts", "A(r_k) among the group's samples at part k",
        Text("Each part of an output (a patch, a pixel) has its own reward and is compared with the same part of the "
        "group's other samples: task.reward_patch.",
        "输出的每个部分（图块、像素）有自己的奖励，与组内其他样本的同一部分比较：task.reward_patch。"),
        "per pixel: PixelRL, 1912.07190",
    ),
)  # fmt: skip

_MISMATCH = (
    "mismatch/ratio_mean", "mismatch/ratio_max", "mismatch/ess", "mismatch/log_prob", "mismatch/truncated",
    "kl/rollout",
)  # fmt: skip
_BY = ("importance_cap", "importance_level")
CORRECTIONS = (
    Card(
        "correction", "none", "anygrpo.algorithm.correction:none", "1",
        Text("Ratios are to the policy that sampled.", "比值直接相对采样时的策略。"),
    ),
    Card(
        "correction", "truncate", "anygrpo.algorithm.correction:truncate", "min(old / behaviour, cap)",
        Text("Truncated importance sampling: bounded variance, a small bias.", "截断重要性采样：方差有界，略有偏差。"),
        "Ionides 2008; Yao et al. 2025", _BY, metrics=_MISMATCH,
    ),
    Card(
        "correction", "mask", "anygrpo.algorithm.correction:mask_above", "old / behaviour; 0 above cap",
        Text("Masked importance sampling: what differs too much is left out.", "掩码重要性采样：偏离过大的不参与。"),
        "Liu et al. 2025", _BY, metrics=_MISMATCH,
    ),
)  # fmt: skip
