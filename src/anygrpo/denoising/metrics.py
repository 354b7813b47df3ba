"""Metrics of denoising policies and of motions."""

from __future__ import annotations

from anygrpo.metrics.metric import Metric
from anygrpo.spoken import Text

METRICS: tuple[Metric, ...] = (
    Metric(
        "diffusion/decisions",
        "1",
        Text(
            "Stochastic denoising steps of a sample: the decisions that are clipped one by one.",
            "每个样本的随机去噪步数，即逐个裁剪的决策数。",
        ),
        "S; steps that follow the ODE are not counted",
        Text(
            "constant within a run; at most the number of steps, less the noise-free last one",
            "运行中不变；不超过总步数减去无噪声的最后一步",
        ),
        Text(
            "A value that changes means that another sampler is in force than the recipe's.",
            "若变化，说明实际采样器与配方不符。",
        ),
    ),
    Metric(
        "diffusion/dimensions",
        "1",
        Text(
            "Valid dimensions D of one decision (padding left out), mean over samples.",
            "单个决策的有效维数 D（不含填充），对样本取平均。",
        ),
        "frames x features of a motion; channels x height x width of an image latent",
        Text(
            "depends on the data. A log-prob summed over D has log-ratios of sd d sqrt(D), its mean has d / "
            "sqrt(D), the "
            "centred one d, with d the rms shift of the mean in units of the step's std",
            "取决于数据。对 D 求和的对数概率比标准差为 d sqrt(D)，取平均为 d / sqrt(D)，中心化为 d，"
            "其中 d 为均值位移（以步长标准差为单位）的均方根",
        ),
        Text(
            'Above about 100, don\'t use event_reduction = "sum".', 'D 大于约 100 时不要使用 event_reduction = "sum"。'
        ),
        low=1.0,
    ),
    Metric(
        "clip/own",
        "1",
        Text(
            "Clip range that this policy has by itself: the unit of its log-ratios (0.2 is a token's).",
            "该策略自身的裁剪范围，即其对数概率比的尺度（词元为 0.2）。",
        ),
        "policy.event_reduction and the number of dimensions decide it (docs/motion.md)",
        Text("constant within a run", "运行中不变"),
        Text(
            "Tiers of log_ratio_explosion are in units of it over 0.2. A recipe's clip far from it: another "
            "reduction's.",
            "log_ratio_explosion 的分级以它除以 0.2 为单位；若配方的裁剪与之相差很远，多半是为别的归约写的。",
        ),
    ),
    Metric(
        "diffusion/window",
        "1",
        Text(
            "First stochastic denoising step of the samples: where the window of scored steps was drawn.",
            "样本的首个随机去噪步，即本次抽取的打分窗口的位置。",
        ),
        "k, drawn once for a rollout; of a rollout sampled in parts, the mean over samples",
        Text("within policy.window_starts, another one in each step", "在 policy.window_starts 之内，每步不同"),
        Text(
            "kl/reference, reward/std_within and advantages depend on it: compare steps whose windows lie alike.",
            "kl/reference、reward/std_within 与优势随之变化：请比较窗口位置相近的步。",
        ),
    ),
    *(
        Metric(
            f"log_prob/{name}",
            "nats",
            Text(
                f"Log-prob of a sample's denoising steps under the {words.en} policy, per dimension "
                f"(`mean_log_prob_{short}` of other trainers, which sum it over all dimensions).",
                f"样本各去噪步在{words.zh}策略下的对数概率，按维平均"
                f"（即其他训练器的 `mean_log_prob_{short}`，后者对全部维求和）。",
            ),
            "mean over decisions and valid dimensions of -z^2 / 2 - log std - log(2 pi) / 2; of the first sample",
            Text(
                "equal before the first update; then their difference is half d^2, d the rms shift of the mean "
                "over std",
                "首次更新前两者相等；其差为 d^2 的一半，d 为均值偏移（以步的标准差计）的均方根",
            ),
            Text(
                "A difference before any update: the reference is another policy (dropout, guidance, other weights).",
                "尚未更新就有差异：参考策略并非同一策略（dropout、引导或权重不同）。",
            ),
        )
        for name, short, words in (
            ("current", "current", Text("sampling", "采样")),
            ("reference", "ref", Text("reference", "参考")),
        )
    ),
    Metric(
        "z2",
        "1",
        Text(
            "Mean square of whitened actions: 1 if and only if the scorer is the sampler. Measured by `anygrpo check`.",
            "白化动作的均方：当且仅当打分者即采样者时为 1。由 `anygrpo check` 测量。",
        ),
        "mean over valid dimensions of ((action - mean) / std)^2; its sd is sqrt(2 / n) over n dimensions",
        Text(
            "1 +- 6 sqrt(2 / n): 1 +- 0.003 for the 2.5 million dimensions of a full-size motion trajectory",
            "1 ± 6 sqrt(2 / n)：完整动作轨迹有约 250 万维，即 1 ± 0.003",
        ),
        Text(
            "Above: dropout, another guidance or other weights while scoring. Below: noise-free steps are "
            "scored. A lower "
            "learning rate mends neither.",
            "偏高：打分时有 dropout、引导不同或权重不同。偏低：给无噪声步骤打了分。降低学习率无济于事。",
        ),
    ),
    Metric(
        "eval/motion/judge",
        "1",
        Text(
            "Agreement of held-out motions with their captions, by an encoder that never rewards (other "
            "windows, other "
            "weights, all captions).",
            "由从不参与奖励的评判编码器（不同片段、不同权重、全部描述）给出的留出动作与描述的一致程度。",
        ),
        "mean of (1 + cosine) / 2",
        Text(
            "rises with reward/component/matching; captured motion has about 0.96, a motion of another action "
            "about 0.47",
            "与 reward/component/matching 同升；真实动作约 0.96，其他动作约 0.47",
        ),
        Text(
            "The reward rises and this does not: the policy exploits the reward's encoder. Raise beta, stop earlier.",
            "奖励升而它不升：策略在钻奖励编码器的空子。增大 beta 或提前停止。",
        ),
        low=0.0,
        high=1.0,
    ),
    Metric(
        "eval/motion/diversity",
        "1",
        Text("How much motions of one caption differ between seeds.", "同一描述在不同随机种子下动作的差异。"),
        "root mean square difference of standardised features over pairs of one caption",
        Text("does not fall by more than about a fifth of its value before training", "相对训练前下降不超过约五分之一"),
        Text(
            "Falling towards 0 is collapse: raise beta, or lower the learning rate.",
            "趋近 0 即坍缩：增大 beta 或降低学习率。",
        ),
        low=0.0,
    ),
    Metric(
        "eval/motion/frechet",
        "1",
        Text(
            "Frechet distance between the judge's embeddings of held-out and of captured motions.",
            "留出动作与真实动作在评判编码器嵌入空间的 Fréchet 距离。",
        ),
        "|m1 - m2|^2 + tr(C1 + C2 - 2 (C1^1/2 C2 C1^1/2)^1/2); biased upwards where samples are few",
        Text(
            "does not rise; comparable only at the same number of held-out prompts",
            "不应上升；仅在留出提示数量相同时可比",
        ),
        Text("A rise means motions leave what was captured: raise beta.", "上升说明动作偏离真实数据：增大 beta。"),
        low=0.0,
    ),
    *(
        Metric(
            f"eval/motion/{name}",
            "1",
            Text(f"Held-out physical score: {words.en}.", f"留出动作的物理得分：{words.zh}。"),
            formula,
            Text("1 is best; not lower than before training", "1 为最佳；不应低于训练前"),
            Text(f"Raise task.{name}.", f"增大 task.{name}。"),
            low=0.0,
            high=1.0,
        )
        for name, words, formula in (
            ("skating", Text("the supporting foot does not slide", "支撑脚不滑动"), "exp(-speed / 0.5 m/s)"),
            ("floor", Text("nothing sinks below the floor", "不穿透地面"), "exp(-mean depth / 2 cm)"),
            (
                "floating",
                Text("nothing hangs in the air", "不悬空"),
                "exp(-mean height of an unsupported body / 5 cm); free flight is none",
            ),
            (
                "contact",
                Text("something touches the floor, or the body flies freely", "有支撑或处于自由飞行"),
                "share of frames",
            ),
            (
                "jerk",
                Text("no jerk beyond captured motion's", "加加速度不超过真实动作"),
                "exp(1 - rms jerk / 1200 m/s^3), at most 1",
            ),
            (
                "limits",
                Text("limbs keep their length, knees and elbows bend as they can", "肢长不变、膝肘弯曲合理"),
                "share of limb checks that hold",
            ),
            ("duration", Text("the length that was asked for", "符合要求的时长"), "min / max of both lengths"),
        )
    ),
    *(
        Metric(
            f"eval/motion/{name}{of}",
            unit,
            Text(f"{words.en}{', of the data itself' if of else ''}.", f"{words.zh}{'（数据本身）' if of else ''}。"),
            formula,
            Text("beside the data's own value (..._of_data)", "与数据自身的值（..._of_data）对照"),
            Text(
                "Better than the data's own value is a sign that a reward is exploited; worse: more weight for "
                "that part.",
                "优于数据自身往往意味着奖励被利用；更差则增大该分项权重。",
            ),
            low=0.0,
        )
        for of in ("", "_of_data")
        for name, unit, words, formula in (
            (
                "skating_ratio",
                "1",
                Text("Share of steps in which a low foot slides (GMD)", "低处脚滑动的步数占比（GMD）"),
                "toe below 5 cm in both frames, over 0.5 m/s at once and in the mean of five frames",
            ),
            (
                "sliding_mm",
                "mm",
                Text("Way over the ground of feet that touch it", "触地脚的水平位移"),
                "mean over pairs of frames that touch (below 2.5 cm)",
            ),
            (
                "floating_mm",
                "mm",
                Text("Height of the lowest joint above the floor", "最低关节离地高度"),
                "mean, beyond 5 mm; jumps count",
            ),
            (
                "penetration_mm",
                "mm",
                Text("Depth of the lowest joint below the floor", "最低关节穿地深度"),
                "mean, beyond 5 mm",
            ),
            (
                "jitter",
                "m/s^3",
                Text("Size of the third difference of the joints", "关节三阶差分的大小"),
                "mean norm x fps^3",
            ),
            (
                "r1",
                "1",
                Text("R-precision at 1, in groups of 32", "R-precision@1（每组 32）"),
                "by the user's evaluator",
            ),
            (
                "r2",
                "1",
                Text("R-precision at 2, in groups of 32", "R-precision@2（每组 32）"),
                "by the user's evaluator",
            ),
            (
                "r3",
                "1",
                Text("R-precision at 3, in groups of 32", "R-precision@3（每组 32）"),
                "by the user's evaluator",
            ),
            (
                "matching_distance",
                "1",
                Text("Distance of a motion's embedding to its text's", "动作与文本嵌入的距离"),
                "mean Euclidean, by the user's evaluator",
            ),
            (
                "spread",
                "1",
                Text("Diversity: mean distance of 300 pairs of embeddings", "多样性：300 对嵌入的平均距离"),
                "by the user's evaluator",
            ),
        )
    ),
    Metric(
        "eval/motion/fid",
        "1",
        Text(
            "Frechet distance of the motions' embeddings to the data's, by the user's evaluator.",
            "动作嵌入与数据嵌入的 Fréchet 距离（用户的评估器）。",
        ),
        "as eval/motion/frechet",
        Text("falls; comparable at one number of prompts only", "应下降；仅在提示数量相同时可比"),
        Text("A rise means motions leave the data: raise beta.", "上升说明动作偏离数据：增大 beta。"),
        low=0.0,
    ),
)
