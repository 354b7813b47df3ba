"""Metrics of selectors and of offline training on stored candidates."""

from __future__ import annotations

from anygrpo.metrics.metric import Metric
from anygrpo.spoken import Text

METRICS: tuple[Metric, ...] = (
    Metric(
        "reuse/share",
        "1",
        Text(
            "Share of a step's samples that earlier steps drew and had judged (`policy.reuse`); reward/* counts them.",
            "一步的样本中由先前步骤抽取并已打分的比例（`policy.reuse`）；reward/* 也计入它们。",
        ),
        "earlier / (earlier + fresh)",
        Text("up to reuse / (reuse + group_size)", "至多为 reuse / (reuse + group_size)"),
        Text(
            "Stays small: queries seldom come back, or most could not be judged.",
            "一直很小：查询很少再次出现，或大多未能打分。",
        ),
        low=0.0,
        high=1.0,
    ),
    Metric(
        "reuse/age",
        "updates",
        Text(
            "Updates made since the weights that drew a step's earlier samples, mean.",
            "自抽取这些先前样本的权重以来的更新次数，取平均。",
        ),
        "mean of (now - version)",
        Text("about an epoch's updates for reuse = group_size", "reuse = group_size 时约为一个 epoch 的更新次数"),
        Text(
            "Large: old draws are clipped or truncated, and teach little; lower policy.reuse.",
            "很大：旧样本会被裁剪或截断，作用有限；请减小 policy.reuse。",
        ),
        low=0.0,
    ),
    Metric(
        "offline/coverage",
        "1",
        Text(
            "Probability that the policy makes one of a query's stored selections, mean over queries.",
            "策略选出该查询某个已存候选的概率，对查询取平均。",
        ),
        "sum of pi(a) over distinct stored selections a",
        Text("above 0.1; it falls as the policy moves away from the file", "高于 0.1；策略远离数据时下降"),
        Text(
            "Near 0 the file says nothing about this policy any more: generate anew, or sample online.",
            "接近 0 时数据已不能说明当前策略：请重新生成或在线采样。",
        ),
        low=0.0,
        high=1.0,
    ),
    Metric(
        "offline/value",
        "1",
        Text(
            "Mean reward of the present policy where it makes a stored selection (self-normalised).",
            "当前策略落在已存候选内时的平均奖励（自归一化）。",
        ),
        "sum of pi(a) r(a) / sum of pi(a), mean over queries with mass",
        Text(
            "rises; the mean reward of a file never does, since the file does not change",
            "应上升；文件本身的平均奖励不会变化",
        ),
        Text(
            "Falls: lower the rate or raise beta; with a low offline/ess it is mostly noise.",
            "下降：降低学习率或增大 beta；offline/ess 低时多为噪声。",
        ),
    ),
    Metric(
        "offline/ess",
        "1",
        Text(
            "Stored selections of a query that offline/value really rests on, mean over queries.",
            "offline/value 实际依赖的候选数，对查询取平均。",
        ),
        "(sum w)^2 / sum w^2 with w = pi(a)",
        Text(
            "between 1 and the candidates of a query; near 1 one selection decides",
            "介于 1 与候选数之间；接近 1 表示仅由一个候选决定",
        ),
        Text(
            "Near 1: the policy left the stored selections; raise beta, or sample anew.",
            "接近 1：策略已离开存储的选择；增大 beta 或重新采样。",
        ),
    ),
    Metric(
        "offline/ndcg_5",
        "1",
        Text("How well the policy ranks a query's stored selections by reward.", "策略按奖励对候选排序的质量。"),
        "NDCG@5 with gains r - min r",
        Text("rises", "上升"),
        Text(
            "Flat: the features do not tell the selections apart, or rewards are noise.",
            "不动：特征区分不了各选择，或奖励是噪声。",
        ),
        low=0.0,
        high=1.0,
    ),
    Metric(
        "offline/regret",
        "1",
        Text(
            "Best stored reward of a query minus that of the policy's likeliest stored selection.",
            "该查询最佳奖励减去策略最可能候选的奖励。",
        ),
        "max r - r(argmax pi)",
        Text("falls towards 0", "向 0 下降"),
        Text(
            "Rises: the policy prefers worse selections; check the sign of the advantages.",
            "上升：策略偏好更差的选择；检查优势符号。",
        ),
        low=0.0,
    ),
    Metric(
        "eval/accuracy_shots_",
        "1",
        Text(
            "Held-out accuracy with the first k picks of the greedy selection.",
            "使用贪心选择前 k 个示例时的留出准确率。",
        ),
        "share of correct answers; a selection that stopped earlier keeps what it has",
        Text("does not fall as k grows", "不应随 k 增大而下降"),
        Text(
            "Falls with k: later picks do harm; let it stop earlier (policy.stop).",
            "随 k 下降：后面的选择有害；更早停止（policy.stop）。",
        ),
        low=0.0,
        high=1.0,
    ),
    Metric(
        "eval/shots",
        "1",
        Text("Picks of the greedy selection before it stopped, mean.", "贪心选择在停止前的平均个数。"),
        "mean length, at most the task's shots",
        Text("between the least and the most picks allowed", "介于允许的最少与最多选择数"),
        Text(
            "At one end always: the stop decision is not learned; look at its reward.",
            "总在一端：停止决策没学会；看其奖励。",
        ),
    ),
    Metric(
        "eval/in_support",
        "1",
        Text(
            "Share of held-out greedy selections that are judged: that the file holds, or that the scorer could judge.",
            "留出集贪心选择中得到评分的比例：文件中有的，或打分器能够评分的。",
        ),
        "found / all",
        Text("depends on the file; near 1 where it was made by the same policy", "取决于文件；由同一策略生成时接近 1"),
        Text("Falls: stored rewards say little of the present policy.", "下降：存储的奖励已难说明当前策略。"),
        low=0.0,
        high=1.0,
    ),
    Metric(
        "offline/padding",
        "1",
        Text(
            "Places of a step's groups that hold no stored candidate: queries have different numbers of them.",
            "一步各组中没有已存候选的空位比例：各查询的候选数不同。",
        ),
        "1 - stored candidates / (queries x the most a query has)",
        Text("any; it is no fault, and not in invalid/share", "任意；不是故障，也不计入 invalid/share"),
        Text("Nothing to do.", "无需处理。"),
        low=0.0,
        high=1.0,
    ),
    Metric(
        "eval/judged",
        "1",
        Text(
            "Held-out greedy selections that the file of stored candidates judges: the n of eval/accuracy.",
            "留出集贪心选择中候选文件能评分的个数，即 eval/accuracy 的样本数 n。",
        ),
        "selections found in the file",
        Text("30 and more", "30 及以上"),
        Text(
            "Few: no accuracy can be told apart; score those selections (anygrpo select plan).",
            "过少：准确率无法比较；请补充评分（anygrpo select plan）。",
        ),
    ),
    Metric(
        "eval/accuracy_low",
        "1",
        Text(
            "Accuracy of all held-out selections, were every one that the file does not judge wrong.",
            "若文件未评分的选择全部算错，留出集的准确率（下界）。",
        ),
        "correct / all",
        Text("with eval/accuracy_high: what the accuracy can be", "与 eval/accuracy_high 一起给出准确率的可能范围"),
        Text("Far from eval/accuracy_high: most is unknown.", "与 eval/accuracy_high 相差大：多数结果未知。"),
        low=0.0,
        high=1.0,
    ),
    Metric(
        "eval/accuracy_high",
        "1",
        Text(
            "Accuracy of all held-out selections, were every one that the file does not judge right.",
            "若文件未评分的选择全部算对，留出集的准确率（上界）。",
        ),
        "(correct + unknown) / all",
        Text("with eval/accuracy_low: what the accuracy can be", "与 eval/accuracy_low 一起给出准确率的可能范围"),
        Text("Far from eval/accuracy_low: most is unknown.", "与 eval/accuracy_low 相差大：多数结果未知。"),
        low=0.0,
        high=1.0,
    ),
    Metric(
        "eval/decides",
        "1",
        Text(
            "1 where enough held-out selections are judged for the best checkpoint and early stopping to follow them.",
            "若已评分的留出选择足够多、可用于挑选最佳检查点与提前停止，则为 1。",
        ),
        "eval/judged >= task.min_judged",
        Text("1", "1"),
        Text(
            "0: no checkpoint is called the best, and patience does not count.",
            "0：不会选出最佳检查点，耐心计数也不增加。",
        ),
        low=0.0,
        high=1.0,
    ),
    Metric(
        "eval/gain_on_support",
        "1",
        Text(
            "Accuracy of the policy minus that of the start, on the held-out queries where the file judges both.",
            "在文件对二者都能评分的留出查询上，策略与初始策略的准确率之差。",
        ),
        "mean of correct - correct of the start, where both are judged",
        Text("above 0, beyond what eval/gain_n queries leave to chance", "大于 0，且超出 eval/gain_n 个查询的偶然误差"),
        Text("Near 0 with a small n: nothing is known.", "n 很小且接近 0：说明不了问题。"),
    ),
    Metric(
        "eval/gain_n",
        "1",
        Text("Held-out queries behind eval/gain_on_support.", "eval/gain_on_support 所依据的留出查询数。"),
        "queries judged for both",
        Text("30 and more", "30 及以上"),
        Text("Few: score the missing selections (anygrpo select plan).", "过少：请补充评分（anygrpo select plan）。"),
    ),
)
