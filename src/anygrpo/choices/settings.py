"""What each key of [algorithm], and of the tables in it, means: a sentence in English and in Chinese."""

from __future__ import annotations

from anygrpo.spoken import Text

SETTINGS: dict[str, Text] = {
    "preset": Text(
        "A published method; sets the keys that the recipe does not give.",
        "已发表的方法；设定配方未给出的键。",
    ),
    "prompts_per_step": Text("P: prompts sampled in a step.", "P：每步采样的提示数。"),
    "group_size": Text(
        "G: samples drawn for each prompt; rewards are compared among them. auto: samples_per_step are spread.",
        "G：每个提示的样本数，奖励在其中比较。auto：分配 samples_per_step。",
    ),
    "samples_per_step": Text(
        "group_size = auto: samples of a step, spread over its prompts by what each can still teach; measured when "
        "the run starts where not given.",
        "group_size = auto：每步的样本总数，按各提示还能教多少来分配；未给出时在启动时测量。",
    ),
    "smallest_group": Text(
        "group_size = auto: fewest samples of a prompt; group sizes are multiples of it.",
        "group_size = auto：每个提示的最少样本数，组大小为其倍数。",
    ),
    "largest_group": Text("group_size = auto: most samples of a prompt.", "group_size = auto：每个提示的最多样本数。"),
    "temperature": Text(
        "Sampling temperature, where it moves: by a schedule, or held by a controller (kind = adaptive); the policy's "
        "own otherwise.",
        "采样温度（随调度变化，或由控制器保持：kind = adaptive）；否则用策略自己的设置。",
    ),
    "credit": Text(
        "Which decisions of a sample of several turns its reward is for; of one turn all are the same.",
        "多轮样本的奖励归于哪些决策；单轮样本没有区别。",
    ),
    "discount": Text(
        "credit = turns, process: what a reward is worth a turn earlier.",
        "credit = turns、process：奖励每提前一轮的折扣。",
    ),
    "advantage": Text("How rewards become advantages.", "奖励如何变成优势。"),
    "std_floor": Text(
        "Smallest standard deviation that advantages are divided by.",
        "优势所除标准差的下限。",
    ),
    "advantage_clip": Text("Advantages are limited to this size.", "优势的绝对值上限。"),
    "component_weights": Text(
        "advantage = components, gdpo: weight of each reward part; the reward's own weight where not named.",
        "advantage = components、gdpo：各奖励分量的权重；未写的用该奖励自己的 weight。",
    ),
    "pass_k": Text("k of pass_at_k.", "pass_at_k 的 k。"),
    "running_decay": Text("Decay of the moving mean and variance over steps.", "滑动均值与方差的衰减。"),
    "history_size": Text("Rewards that are kept of each prompt.", "每个提示保留的奖励个数。"),
    "history_least": Text(
        "Rewards that a prompt's own statistics need; with fewer the batch's are taken.",
        "使用提示自身统计所需的奖励个数；不足时用整个批次的统计。",
    ),
    "ddof": Text("Divisor of the group's variance: n - ddof.", "组内方差的除数：n − ddof。"),
    "epsilon": Text(
        "Added to the standard deviation; 0 is safe (no clip range: see clip_low, clip_high).",
        "加在标准差上的数；0 即可（不是裁剪范围，裁剪见 clip_low、clip_high）。",
    ),
    "objective": Text("The loss of each decision.", "每个决策的损失。"),
    "clip_low": Text(
        "The ratio is clipped below at 1 - clip_low; the objective's or the policy type's own where not given.",
        "比值下限为 1 − clip_low；未给出时用目标或策略类型的默认值。",
    ),
    "clip_high": Text(
        "The ratio is clipped above at 1 + clip_high; the objective's or the policy type's own where not given.",
        "比值上限为 1 + clip_high；未给出时用目标或策略类型的默认值。",
    ),
    "dual_clip": Text(
        "For negative advantages the loss stays below this times their size.",
        "优势为负时，损失不超过其绝对值的这么多倍。",
    ),
    "tau_positive": Text(
        "objective = sapo: steepness of the gate for advantages above 0.", "优势为正时 SAPO 门的陡度。"
    ),
    "tau_negative": Text(
        "objective = sapo: steepness of the gate for advantages below 0.", "优势为负时 SAPO 门的陡度。"
    ),
    "ratio_guard": Text(
        "Decisions whose log-ratio exceeds this leave the loss, and are counted.",
        "对数概率比超出此值的决策不进入损失，并被计数。",
    ),
    "importance": Text(
        "Factor old / behaviour on losses, where samples are not the old policy's own (another engine or precision, "
        "off_policy_steps). truncate: at most importance_cap. mask: 0 above it. none: ratios are to the policy that "
        "sampled.",
        "样本不来自旧策略时（别的引擎或精度、off_policy_steps），损失上的系数 旧策略 / 行为策略。truncate：不超过 "
        "importance_cap。mask：超过它的为 0。none：比率相对采样的策略。",
    ),
    "importance_cap": Text("Largest factor of `importance`.", "importance 系数的上限。"),
    "importance_level": Text("One factor a decision, or one a sample.", "每个决策一个系数，或每个样本一个。"),
    "reduction": Text("What a decision's loss is divided by.", "每个决策的损失除以什么。"),
    "horizon": Text(
        "The length that counts as 1 (reduction = constant); the policy's limit where not given.",
        "计为 1 的长度（reduction = constant）；未给出时用策略的长度上限。",
    ),
    "epochs": Text("Passes over each rollout.", "每批样本使用几遍。"),
    "minibatches": Text("Optimizer steps in a pass; groups are never split.", "每遍的优化步数；组不拆开。"),
    "target_kl": Text(
        "Stop a step's further updates once the KL to the behaviour policy exceeds this.",
        "与行为策略的 KL 超出此值时，停止本步余下的更新。",
    ),
    "lambda_pg": Text("Weight of the objective.", "目标的权重。"),
    "lambda_supervised": Text("Weight of a supervised loss beside the objective.", "目标之外附加的监督损失的权重。"),
    "lambda_consistency": Text("Weight of the policy's consistency loss.", "策略一致性损失的权重。"),
    "entropy_coef": Text(
        "Weight of the entropy bonus; it acts on groups without reward spread too.",
        "熵奖励的权重；对奖励无差异的组同样起作用。",
    ),
    "beta": Text("Weight of the KL to the reference policy.", "与参考策略的 KL 的权重。"),
    "kl": Text("How the KL to the reference policy is computed.", "与参考策略的 KL 如何计算。"),
    "kl_controller": Text(
        "How the KL's weight, beta, follows the KL. fixed: not at all. proportional: towards kl_target (Ziegler 2019). "
        "band: x or / kl_factor outside [kl_low, kl_high].",
        "KL 的权重 beta 如何随 KL 调整。fixed：不变。proportional：使 KL 趋向 kl_target（Ziegler 2019）。"
        "band：KL 在 [kl_low, kl_high] 之外时乘以或除以 kl_factor。",
    ),
    "kl_target": Text("The KL that the proportional controller aims at.", "proportional 控制器的目标 KL。"),
    "kl_horizon": Text(
        "Samples over which the proportional controller moves the weight by at most a fifth.",
        "proportional 控制器每处理这么多样本，权重最多变化五分之一。",
    ),
    "kl_low": Text("Below this KL the band controller lowers beta.", "KL 低于此值时 band 控制器减小权重。"),
    "kl_high": Text("Above this KL the band controller raises beta.", "KL 高于此值时 band 控制器增大权重。"),
    "kl_factor": Text("Factor of the band controller.", "band 控制器的乘除系数。"),
    "beta_min": Text(
        "A controller keeps beta at or above this, so that it can return.",
        "控制器使权重不低于此值，以便能够回升。",
    ),
    "beta_max": Text("A controller keeps beta at or below this.", "控制器使权重不高于此值。"),
    "rce_temperature": Text("Temperature of reward-weighted cross-entropy.", "奖励加权交叉熵的温度。"),
    "rce_variant": Text("Weights by reward, by rank, or all on the best.", "按奖励、按排名，或全部给最好者。"),
    "filters": Text("Run in order, before advantages are computed.", "按顺序在计算优势之前执行。"),
    "overlong_buffer": Text(
        "The last so many decisions before the policy's limit lower the reward linearly to -1.",
        "距长度上限最后这么多个决策内，奖励线性降低，直至 −1。",
    ),
    "refill": Text(
        "Up to this many further draws replace groups that filters removed.",
        "最多再采样这么多次，替换被过滤的组。",
    ),
    "low": Text("pass_rate_band: smallest share.", "pass_rate_band：最小比例。"),
    "high": Text("pass_rate_band: largest share.", "pass_rate_band：最大比例。"),
    "threshold": Text("The reward that counts as passed.", "计为通过的奖励。"),
    "component": Text("Name of the reward part.", "奖励分量的名称。"),
    "spread": Text("Smallest difference of best and worst.", "最好与最差之间的最小差值。"),
    "k": Text("Samples kept of each group.", "每组保留的样本数。"),
    "start": Text("Value after warm-up.", "预热后的值。"),
    "end": Text(
        "Value at the last step; 0 would be reached a step later, so that none is wasted.",
        "最后一步的值；为 0 时在其后一步才到达，不浪费最后一步。",
    ),
    "warmup": Text("Steps that climb linearly to start.", "线性升到 start 的步数。"),
    "steps": Text("Length; the stage's own where not given.", "长度；未给出时为阶段长度。"),
    "milestones": Text("Steps at which the value is multiplied by factor.", "在这些步乘以 factor。"),
    "factor": Text("The factor at each milestone.", "每个里程碑处的系数。"),
    "column": Text("The data's column with the answer (or the tests).", "数据中答案（或测试）所在的列。"),
    "tolerance": Text("Largest absolute difference still called equal.", "仍视为相等的最大绝对差。"),
    "ignore_case": Text("Whether capitals count.", "是否忽略大小写。"),
    "pattern": Text("The regular expression.", "正则表达式。"),
    "full": Text("Whether it must describe the whole output.", "是否须匹配整个输出。"),
    "timeout": Text("Seconds a call may take.", "一次调用的秒数上限。"),
    "target": Text("What is aimed at.", "目标值。"),
    "width": Text(
        "Distance at which the reward reaches 0; the target where not given.",
        "奖励降到 0 的距离；未给出时为目标值。",
    ),
    "unit": Text("Words or characters.", "按词或按字符。"),
    "language": Text("Language of the connective words.", "连接词的语言。"),
    "ngram": Text("Length of the sequences compared.", "比较的片段长度。"),
    "partial": Text("Whether the share of passed tests counts.", "是否按通过测试的比例计。"),
    "memory_mb": Text("Memory of each process.", "每个进程的内存上限。"),
    "processes": Text("Processes alive at once.", "同时存在的进程数上限。"),
    "entry_point": Text("Column that names the function under test (HumanEval).", "给出被测函数名的列（HumanEval）。"),
    "url": Text(
        "Address of an OpenAI-compatible endpoint, up to and without /chat/completions.",
        "OpenAI 兼容接口的地址，到 /chat/completions 之前为止。",
    ),
    "model": Text(
        "The model that judges, by the endpoint's name, the Hub's, or a folder.",
        "评分模型：接口中的名称、Hub 名称或文件夹。",
    ),
    "template": Text(
        "A text file that asks, with {prompt}, {output} and any column.",
        "提问模板文件，可用 {prompt}、{output} 和任意列。",
    ),
    "system": Text("System message of the question.", "提问时的系统消息。"),
    "cache": Text("SQLite file that keeps answers by what was asked.", "按提问内容保存回答的 SQLite 文件。"),
    "key_env": Text("Environment variable that holds the key.", "存放密钥的环境变量。"),
    "attempt": Text("Seconds for one try.", "单次尝试的秒数。"),
    "retries": Text("Tries after the first.", "首次之后的重试次数。"),
    "concurrency": Text("Questions under way at once.", "同时进行的提问数。"),
    "per_minute": Text("Most requests a minute; 0 for no limit.", "每分钟请求上限；0 表示不限。"),
    "parameters": Text("Put into the request: max_tokens, seed, ...", "放入请求的参数：max_tokens、seed 等。"),
    "structured": Text("How the form of the answer is asked for.", "如何要求回答的格式。"),
    "prompt_price": Text("Money for a million prompt tokens.", "每百万输入 token 的价格。"),
    "completion_price": Text("Money for a million completion tokens.", "每百万输出 token 的价格。"),
    "budget": Text(
        "No question is asked once so much is spent; 0 for no limit.", "花费达到此值后不再提问；0 表示不限。"
    ),
    "device": Text("Where the model computes.", "模型所在的设备。"),
    "dtype": Text("Type that the model computes in.", "模型的计算精度。"),
    "batch_size": Text("Outputs scored at once.", "一次评分的输出数。"),
    "max_length": Text("Longer conversations, in tokens, are invalid.", "超过此 token 数的对话视为无效。"),
    "load_timeout": Text("Seconds for loading the model.", "加载模型的秒数上限。"),
}
"""Key -> what it means."""
