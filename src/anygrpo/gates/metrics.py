"""Metrics of image restoration and of stochastic modules."""

from __future__ import annotations

from anygrpo.metrics.metric import Metric
from anygrpo.spoken import Text


def _standard_error(of: str, unit: str) -> Metric:
    return Metric(
        f"{of}_se/",
        unit,
        Text(
            f"Standard error of {of}/NAME over pictures; the mean +- twice it is a 95% interval.",
            f"{of}/名称 对图像的标准误；均值 ± 2 倍即 95% 区间。",
        ),
        "std over pictures / sqrt(number of pictures)",
        Text(
            "small beside the gain that is claimed; a paired difference has a smaller one",
            "应小于所声称的增益；配对差的标准误更小",
        ),
        Text(
            "Larger than the gain: hold out more pictures, or compare two runs picture by picture.",
            "大于增益：留出更多图像，或逐图比较两次运行。",
        ),
        low=0.0,
    )


METRICS: tuple[Metric, ...] = (
    Metric(
        "eval/psnr",
        "dB",
        Text(
            "Peak signal-to-noise ratio of held-out pictures restored with deterministic gates: mean over pictures.",
            "留出图像在确定性门控下复原的峰值信噪比，对图像取平均。",
        ),
        "mean of -10 log10(MSE per picture); outputs clipped to [0, 1] and rounded to 8 bits",
        Text(
            "rises; compare it with the same network trained by supervision alone for the same time",
            "上升；应与同一网络仅监督训练同样时间的结果比较",
        ),
        Text(
            "Means hide a degradation that gets worse: look at eval/psnr/NAME.",
            "平均值会掩盖变差的退化类型：请看 eval/psnr/名称。",
        ),
    ),
    Metric(
        "eval/psnr/",
        "dB",
        Text("The same for one degradation.", "单一退化类型的 PSNR。"),
        "mean over held-out pictures with that degradation",
        Text("rises; each degradation has its own start", "上升；各退化类型起点不同"),
        Text(
            "One falls while the mean rises: its prompts are too few or too hard; balance task.degradations.",
            "均值升而某类下降：该类提示过少或过难；平衡 task.degradations。",
        ),
    ),
    Metric(
        "eval/ssim",
        "1",
        Text(
            "Structural similarity of held-out restored pictures: mean over pictures.",
            "留出图像复原结果的结构相似度，对图像取平均。",
        ),
        "Wang et al. 2004, Gaussian window 11, sigma 1.5, data range 1, borders included",
        Text(
            "rises together with eval/psnr; one rising while the other falls means the reward weights trade them",
            "与 eval/psnr 同升；一升一降说明奖励权重在二者间取舍",
        ),
        Text(
            "PSNR rises and this falls: blurred pictures; raise task.w_ssim.",
            "PSNR 升而它降：图像变模糊；增大 task.w_ssim。",
        ),
        low=-1.0,
        high=1.0,
    ),
    Metric(
        "eval/ssim/",
        "1",
        Text("The same for one degradation.", "单一退化类型的 SSIM。"),
        "mean over held-out pictures with that degradation",
        Text("rises; each degradation has its own start", "上升；各退化类型起点不同"),
        Text("As for eval/psnr/.", "同 eval/psnr/。"),
        low=-1.0,
        high=1.0,
    ),
    _standard_error("eval/psnr", "dB"),
    _standard_error("eval/ssim", "1"),
    Metric(
        "eval/psnr_outside",
        "1",
        Text(
            "Share of held-out pictures whose PSNR lies outside [psnr_low, psnr_high], where its reward term is "
            "constant.",
            "PSNR 落在 [psnr_low, psnr_high] 之外的留出图像比例；此处该奖励项为常数。",
        ),
        "share of held-out pictures",
        Text("near 0", "接近 0"),
        Text(
            "Widen task.psnr_low .. task.psnr_high: outside, better and worse earn the same.",
            "放宽 task.psnr_low .. task.psnr_high：范围外好坏同分。",
        ),
        low=0.0,
        high=1.0,
    ),
    Metric(
        "eval/measure/",
        "of the measure",
        Text(
            "A further measure of task.perceptual on held-out pictures: NAME over all, NAME/DEGRADATION over one kind.",
            "task.perceptual 中另一指标在留出图像上的均值（名称：全部；名称/退化：单类），符号与论文一致。",
        ),
        "mean over held-out pictures; a metric that is better when lower keeps its sign here",
        Text(
            "does not get worse while PSNR rises, above all where it is not rewarded",
            "PSNR 上升时不变差，尤其当它不计入奖励时",
        ),
        Text(
            "Gets worse while PSNR rises: give it a weight, or stop earlier.", "PSNR 升而它变差：给它权重，或提前停止。"
        ),
    ),
    Metric(
        "restoration/gate_mean/",
        "1",
        Text("Mean of a gate's drawn values (NAME: the site).", "某门控抽样取值的均值（名称：门控）。"),
        "mean over the step's samples and the site's numbers",
        Text("moves, and then settles", "先移动，后稳定"),
        Text(
            "Does not move for hundreds of steps: the rate is too small, or the gate is dead (anygrpo check: sites).",
            "数百步不动：学习率过小，或门控失效（anygrpo check 的 sites）。",
        ),
    ),
    Metric(
        "restoration/gate_effect/",
        "1/255",
        Text(
            "What drawing a gate alone changes in the output (NAME: the site). 0: dead; none: it drew one value.",
            "单独抽样某门控时输出的变化（名称：门控）；0 表示门控失效；只抽到一个取值时不记录。",
        ),
        "255 x mean |output - output with all gates at their mean|, 4 draws of 4 training prompts, at evaluations",
        Text("above 0 for every gate that is sampled", "每个被抽样的门控都应大于 0"),
        Text(
            "0: its value reaches nothing (a rounding that gives 0 at this crop, a branch not taken).",
            "为 0：取值不起作用（该裁剪尺寸下取整为 0，或分支未执行）。",
        ),
        low=0.0,
    ),
    Metric(
        "restoration/gate_reward_std/",
        "1",
        Text(
            "Standard deviation inside a group of the reward when a gate alone is drawn (NAME: the site).",
            "单独抽样某门控时，组内奖励的标准差（名称：门控）。",
        ),
        "std over 4 draws, mean over 4 training prompts, at evaluations",
        Text("of the order of reward/std_within for the gates that matter", "重要门控与 reward/std_within 同量级"),
        Text(
            "Near 0 beside other gates': GRPO has nothing to choose there; leave it out of policy.sites.",
            "相对其他门控接近 0：GRPO 在此无可选择；从 policy.sites 去掉。",
        ),
        low=0.0,
    ),
    Metric(
        "restoration/gate_headroom/",
        "1",
        Text(
            "How much reward the best of a gate's draws has above its mean (NAME: the site).",
            "某门控最优抽样的奖励比其均值高多少（名称：门控）。",
        ),
        "max over 4 draws - reward with all gates at their mean (or mode), mean over 4 training prompts",
        Text("falls as the gates learn what to choose", "门控学会选择后下降"),
        Text(
            "Near 0 or below from the start: draws are worth nothing; gates elsewhere, or wider.",
            "一开始即近 0 或为负：抽样无价值；换位置或加宽分布。",
        ),
    ),
    Metric(
        "restoration/gate_spread/",
        "1",
        Text(
            "Standard deviation of a gate's drawn values inside a group (NAME: the site): what GRPO has to "
            "choose from.",
            "某门控组内取值的标准差（名称：门控）：GRPO 可选择的范围。",
        ),
        "std over the group, mean over groups and the site's numbers",
        Text("falls slowly while the reward rises", "奖励上升时缓慢下降"),
        Text(
            "Near 0 from the start: a lower concentration or a larger spread; fallen to 0 early: entropy_coef.",
            "一开始即近 0：降低 concentration 或增大 spread；过早降为 0：用 entropy_coef。",
        ),
        low=0.0,
    ),
    Metric(
        "restoration/gate_edge_share",
        "1",
        Text(
            "Share of drawn gate values that were moved off 0 or 1, where a Beta density is infinite.",
            "为避开 Beta 密度无穷处而从 0 或 1 处移开的门控取值比例。",
        ),
        "numbers moved by 1e-6 / numbers drawn",
        Text("0 for unimodal gates", "单峰门控时为 0"),
        Text(
            "A share above 0.01 means gates with a, b < 1: bound them below, for example a = 1 + ...",
            "高于 0.01 说明 a、b < 1：请设下界，例如 a = 1 + ...",
        ),
        low=0.0,
        high=1.0,
    ),
)
