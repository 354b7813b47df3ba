"""What each key of [algorithm], and of the tables in it, means: a sentence in English and in Chinese."""

from __future__ import annotations

SETTINGS: dict[str, tuple[str, str]] = {
    "preset": (
        "A published method; sets the keys that the recipe does not give.",
        "已发表的方法；设定配方未给出的键。",
    ),
    "prompts_per_step": ("P: prompts sampled in a step.", "P：每步采样的提示数。"),
    "group_size": (
        "G: samples drawn for each prompt; rewards are compared among them.",
        "G：每个提示的样本数，奖励在其中比较。",
    ),
    "temperature": (
        "Sampling temperature, where it follows a schedule; the policy's own otherwise.",
        "采样温度（需要随调度变化时）；否则用策略自己的设置。",
    ),
    "advantage": ("How rewards become advantages.", "奖励如何变成优势。"),
    "std_floor": (
        "Smallest standard deviation that advantages are divided by.",
        "优势所除标准差的下限。",
    ),
    "advantage_clip": ("Advantages are limited to this size.", "优势的绝对值上限。"),
    "component_weights": (
        "Weight of each reward part (1 where not named).",
        "各奖励分量的权重（未写的为 1）。",
    ),
    "pass_k": ("k of pass_at_k.", "pass_at_k 的 k。"),
    "running_decay": ("Decay of the moving mean and variance over steps.", "滑动均值与方差的衰减。"),
    "ddof": ("Divisor of the group's variance: n - ddof.", "组内方差的除数：n − ddof。"),
    "epsilon": (
        "Added to the standard deviation; 0 is safe (no clip range: see clip_low, clip_high).",
        "加在标准差上的数；0 即可（不是裁剪范围，裁剪见 clip_low、clip_high）。",
    ),
    "objective": ("The loss of each decision.", "每个决策的损失。"),
    "clip_low": (
        "The ratio is clipped below at 1 - clip_low; the objective's or the policy type's own where not given.",
        "比值下限为 1 − clip_low；未给出时用目标或策略类型的默认值。",
    ),
    "clip_high": (
        "The ratio is clipped above at 1 + clip_high; the objective's or the policy type's own where not given.",
        "比值上限为 1 + clip_high；未给出时用目标或策略类型的默认值。",
    ),
    "dual_clip": (
        "For negative advantages the loss stays below this times their size.",
        "优势为负时，损失不超过其绝对值的这么多倍。",
    ),
    "tau_positive": ("Steepness of SAPO's gate for advantages above 0.", "优势为正时 SAPO 门的陡度。"),
    "tau_negative": ("Steepness of SAPO's gate for advantages below 0.", "优势为负时 SAPO 门的陡度。"),
    "ratio_guard": (
        "Decisions whose log-ratio exceeds this leave the loss, and are counted.",
        "对数概率比超出此值的决策不进入损失，并被计数。",
    ),
    "importance": (
        "Factor old / behaviour on losses, where samples are not the old policy's own.",
        "样本不来自旧策略时，损失上的系数 旧策略 / 行为策略。",
    ),
    "importance_cap": ("The factor is limited here.", "该系数的上限。"),
    "importance_level": ("One factor a decision, or one a sample.", "每个决策一个系数，或每个样本一个。"),
    "reduction": ("What a decision's loss is divided by.", "每个决策的损失除以什么。"),
    "horizon": (
        "The length that counts as 1 (reduction = constant); the policy's limit where not given.",
        "计为 1 的长度（reduction = constant）；未给出时用策略的长度上限。",
    ),
    "epochs": ("Passes over each rollout.", "每批样本使用几遍。"),
    "minibatches": ("Optimizer steps in a pass; groups are never split.", "每遍的优化步数；组不拆开。"),
    "target_kl": (
        "Stop a step's further updates once the KL to the behaviour policy exceeds this.",
        "与行为策略的 KL 超出此值时，停止本步余下的更新。",
    ),
    "lambda_pg": ("Weight of the objective.", "目标的权重。"),
    "lambda_supervised": ("Weight of a supervised loss beside it.", "附加监督损失的权重。"),
    "lambda_consistency": ("Weight of the policy's consistency loss.", "策略一致性损失的权重。"),
    "entropy_coef": (
        "Weight of the entropy bonus; it acts on groups without reward spread too.",
        "熵奖励的权重；对奖励无差异的组同样起作用。",
    ),
    "beta": ("Weight of the KL to the reference policy.", "与参考策略的 KL 的权重。"),
    "kl": ("How that KL is computed.", "该 KL 如何计算。"),
    "kl_controller": ("How its weight follows the KL.", "其权重如何随 KL 调整。"),
    "kl_target": ("The KL that the proportional controller aims at.", "proportional 控制器的目标 KL。"),
    "kl_horizon": (
        "Samples over which the proportional controller moves the weight by at most a fifth.",
        "proportional 控制器每处理这么多样本，权重最多变化五分之一。",
    ),
    "kl_low": ("Below it the band controller lowers the weight.", "KL 低于此值时 band 控制器减小权重。"),
    "kl_high": ("Above it the band controller raises the weight.", "KL 高于此值时 band 控制器增大权重。"),
    "kl_factor": ("Factor of the band controller.", "band 控制器的乘除系数。"),
    "beta_min": (
        "A controller keeps the weight at or above this, so that it can return.",
        "控制器使权重不低于此值，以便能够回升。",
    ),
    "beta_max": ("A controller keeps the weight at or below this.", "控制器使权重不高于此值。"),
    "rce_temperature": ("Temperature of reward-weighted cross-entropy.", "奖励加权交叉熵的温度。"),
    "rce_variant": ("Weights by reward, by rank, or all on the best.", "按奖励、按排名，或全部给最好者。"),
    "filters": ("Run in order, before advantages are computed.", "按顺序在计算优势之前执行。"),
    "overlong_buffer": (
        "The last so many decisions before the policy's limit lower the reward linearly to -1.",
        "距长度上限最后这么多个决策内，奖励线性降低，直至 −1。",
    ),
    "refill": (
        "Up to this many further draws replace groups that filters removed.",
        "最多再采样这么多次，替换被过滤的组。",
    ),
    "low": ("pass_rate_band: smallest share.", "pass_rate_band：最小比例。"),
    "high": ("pass_rate_band: largest share.", "pass_rate_band：最大比例。"),
    "threshold": ("The reward that counts as passed.", "计为通过的奖励。"),
    "component": ("Name of the reward part.", "奖励分量的名称。"),
    "spread": ("Smallest difference of best and worst.", "最好与最差之间的最小差值。"),
    "k": ("Samples kept of each group.", "每组保留的样本数。"),
    "start": ("Value after warm-up.", "预热后的值。"),
    "end": (
        "Value at the last step; 0 would be reached a step later, so that none is wasted.",
        "最后一步的值；为 0 时在其后一步才到达，不浪费最后一步。",
    ),
    "warmup": ("Steps that climb linearly to start.", "线性升到 start 的步数。"),
    "steps": ("Length; the stage's own where not given.", "长度；未给出时为阶段长度。"),
    "milestones": ("Steps at which the value is multiplied by factor.", "在这些步乘以 factor。"),
    "factor": ("The factor at each milestone.", "每个里程碑处的系数。"),
    "column": ("The data's column with the answer (or the tests).", "数据中答案（或测试）所在的列。"),
    "tolerance": ("Largest absolute difference still called equal.", "仍视为相等的最大绝对差。"),
    "ignore_case": ("Whether capitals count.", "是否忽略大小写。"),
    "pattern": ("The regular expression.", "正则表达式。"),
    "full": ("Whether it must describe the whole output.", "是否须匹配整个输出。"),
    "timeout": ("Seconds a call may take.", "一次调用的秒数上限。"),
    "target": ("What is aimed at.", "目标值。"),
    "width": (
        "Distance at which the reward reaches 0; the target where not given.",
        "奖励降到 0 的距离；未给出时为目标值。",
    ),
    "unit": ("Words or characters.", "按词或按字符。"),
    "language": ("Language of the connective words.", "连接词的语言。"),
    "ngram": ("Length of the sequences compared.", "比较的片段长度。"),
    "partial": ("Whether the share of passed tests counts.", "是否按通过测试的比例计。"),
    "memory_mb": ("Memory of each process.", "每个进程的内存上限。"),
    "processes": ("Processes alive at once.", "同时存在的进程数上限。"),
}
"""Key -> (English, Chinese)."""
