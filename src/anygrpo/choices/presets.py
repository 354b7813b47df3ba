"""Published methods as presets of [algorithm]. What was checked where stands in `source`; values that a paper does not
state are said to be another's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anygrpo.choices.card import Preset
from anygrpo.spoken import Text

_PPO: Mapping[str, Any] = {"objective": "ppo", "clip_low": 0.2, "clip_high": 0.2}

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "grpo",
            {**_PPO, "advantage": "zscore", "reduction": "sequence_mean", "beta": 0.04, "kl": "k3"},
            Text(
                "arXiv 2402.03300, section 4.2 (KL .04); the paper does not state its clip range, .2 is PPO's",
                "arXiv 2402.03300 第 4.2 节（KL .04）；论文没有给出裁剪范围，.2 是 PPO 的",
            ),
            Text("GRPO as DeepSeekMath trained it.", "DeepSeekMath 论文中的 GRPO。"),
            Text(
                "G 64, 1024 samples a step, lr 1e-6, 1024 tokens, one update a rollout. The gradient of the KL is the "
                "right one here (docs/algorithm.md), not that of k3 in the loss.",
                "G 64，每步 1024 个样本，lr 1e-6，1024 个 token，每次采样更新一次。此处 KL "
                "的梯度是正确的那个（docs/algorithm.md），不是把 k3 放进损失得到的。",
            ),
        ),
        Preset(
            "dapo",
            {
                **_PPO,
                "clip_high": 0.28,
                "advantage": "zscore",
                "reduction": "token_mean",
                "beta": 0.0,
                "filters": ({"kind": "drop_constant"},),
                "refill": 9,
            },
            Text(
                "arXiv 2503.14476, section 4.1 (clip, KL), as TRL's paper index and verl's recipe (10 draws) print it",
                "arXiv 2503.14476 第 4.1 节（裁剪、KL），据 TRL 的论文索引与 verl 的配方（抽取 10 次）",
            ),
            Text(
                "DAPO: higher upper clip, token mean, groups without spread replaced.",
                "DAPO：更高的裁剪上界、token 平均、替换奖励无差异的组。",
            ),
            Text(
                "G 16, 512 prompts, lr 1e-6, 20480 tokens, of which overlong_buffer = 4096 (as in verl's "
                "recipe): set it "
                "for your limit.",
                "G 16，512 个提示，lr 1e-6，20480 个 token，其中 overlong_buffer = 4096（据 verl 的配方）："
                "请按自己的上限设置。",
            ),
        ),
        Preset(
            "dr_grpo",
            {**_PPO, "advantage": "centred", "reduction": "constant", "beta": 0.0},
            Text(
                "arXiv 2503.20783, as its repository's training scripts set it; the clip range is PPO's",
                "arXiv 2503.20783，据其代码库的训练脚本；裁剪范围是 PPO 的",
            ),
            Text(
                "GRPO without the two divisions that bias it: by a sample's length and by a group's spread.",
                "去掉 GRPO 中引入偏差的两个除法：样本长度与组内标准差。",
            ),
            Text(
                "G 8, 128 prompts, 3000 tokens, lr 1e-6 (its repository's scripts). The constant is the "
                "policy's limit, or `horizon`.",
                "G 8，128 个提示，3000 个 token，lr 1e-6（其代码库的脚本）。常数为策略的上限，或 `horizon`。",
            ),
        ),
        Preset(
            "gspo",
            {
                "objective": "gspo",
                "clip_low": 3e-4,
                "clip_high": 4e-4,
                "advantage": "zscore",
                "reduction": "sequence_mean",
                "beta": 0.0,
                "minibatches": 4,
            },
            Text(
                "arXiv 2507.18071 (v2), section 5.1, as TRL's paper index prints it",
                "arXiv 2507.18071 (v2) 第 5.1 节，据 TRL 的论文索引",
            ),
            Text("One clipped ratio a sample.", "每个样本一个裁剪比值。"),
            Text(
                "lr 1e-6, 512 prompts of 16 samples in verl's example.",
                "lr 1e-6，512 个提示各 16 个样本（verl 的示例）。",
            ),
        ),
        Preset(
            "cispo",
            {
                "objective": "cispo",
                "clip_low": 1.0,
                "clip_high": 4.0,
                "advantage": "zscore",
                "reduction": "token_mean",
                "beta": 0.0,
            },
            Text(
                "arXiv 2506.13585 sets no floor and tunes its cap (as Trinity-RFT quotes it; no number is quoted, the "
                "paper was not read); 5 (1 + 4) is ScaleRL's, as TRL's paper index prints it",
                "arXiv 2506.13585 不设下限而只调上限（据 Trinity-RFT 的引文；未见具体数值，论文未读）；5（1 + "
                "4）取自 ScaleRL，据 TRL 的论文索引",
            ),
            Text("The weight of a decision is limited, its gradient is not.", "限制决策的权重，不限制其梯度。"),
            Text(
                "In verl and NeMo-RL the same number means 1 + eps: 5 there is clip_high = 5 here.",
                "在 verl 与 NeMo-RL 中同一个数指 1 + eps：那里的 5 即此处 clip_high = 5。",
            ),
        ),
        Preset(
            "scalerl",
            {
                "objective": "cispo",
                "clip_low": 1.0,
                "clip_high": 4.0,
                "advantage": "batch",
                "reduction": "prompt_mean",
                "beta": 0.0,
            },
            Text(
                "arXiv 2510.13786, cap and batch scale as TRL's paper index prints them; the mean over prompts as "
                "summaries of the paper say",
                "arXiv 2510.13786，上限与批次尺度据 TRL 的论文索引；对提示取平均据论文的摘要介绍",
            ),
            Text("CISPO with batch-wide scale and prompts of equal weight.", "CISPO，批次尺度，各提示权重相同。"),
            Text("G 16, logits in float32.", "G 16，logits 用 float32。"),
        ),
        Preset(
            "sapo",
            {
                "objective": "sapo",
                "tau_positive": 1.0,
                "tau_negative": 1.05,
                "advantage": "zscore",
                "reduction": "sequence_mean",
                "beta": 0.0,
            },
            Text("arXiv 2511.20347, as TRL's paper index prints it", "arXiv 2511.20347，据 TRL 的论文索引"),
            Text("A soft gate in place of the clip.", "用平滑门代替裁剪。"),
        ),
        Preset(
            "luspo",
            {
                "objective": "gspo",
                "clip_low": 2e-3,
                "clip_high": 2.5e-3,
                "advantage": "zscore",
                "reduction": "constant",
                "horizon": 1,
                "beta": 0.0,
            },
            Text(
                "arXiv 2602.05261, section 5.1 (clip range), as TRL's paper index prints it: each "
                "sample's loss times its length",
                "arXiv 2602.05261 第 5.1 节（裁剪范围），据 TRL 的论文索引：每个样本的损失乘以其长度",
            ),
            Text("GSPO without the division by a sample's length.", "不除以样本长度的 GSPO。"),
        ),
        Preset(
            "rloo",
            {
                "objective": "reinforce",
                "advantage": "leave_one_out",
                "reduction": "constant",
                "horizon": 1,
                "beta": 0.03,
                "kl": "k1",
            },
            Text(
                "arXiv 2402.14740, appendix C (KL .03), as TRL's paper index prints it",
                "arXiv 2402.14740 附录 C（KL .03），据 TRL 的论文索引",
            ),
            Text("REINFORCE with the other samples as baseline.", "以同组其他样本为基线的 REINFORCE。"),
            Text(
                "G 2 or 4, 512 samples a step, lr 1e-6. The paper subtracts the KL from the reward; here it is a loss "
                "of its own.",
                "G 2 或 4，每步 512 个样本，lr 1e-6。论文从奖励中减去 KL；此处 KL 是单独的损失。",
            ),
        ),
        Preset(
            "reinforce_pp",
            {**_PPO, "advantage": "overall", "reduction": "token_mean", "beta": 1e-3, "kl": "k2"},
            Text(
                "arXiv 2501.03262; KL 1e-3 is RLinf's setting of it, subtracted from the reward there",
                "arXiv 2501.03262；KL 1e-3 是 RLinf 对它的设置，那里从奖励中减去",
            ),
            Text(
                "REINFORCE++: whitened over the batch, one sample a prompt is enough.",
                "REINFORCE++：批次内白化，每个提示一个样本即可。",
            ),
        ),
        Preset(
            "reinforce_pp_baseline",
            {**_PPO, "clip_high": 0.27, "advantage": "whitened", "reduction": "token_mean", "beta": 1e-4, "kl": "k2"},
            Text(
                "arXiv 2501.03262; clip .2/.27 and k2 with 1e-4 as OpenRLHF's ProRL v2 script; its plain "
                "example has 1e-5",
                "arXiv 2501.03262；裁剪 .2/.27 与 k2、1e-4 据 OpenRLHF 的 ProRL v2 脚本；其普通示例为 1e-5",
            ),
            Text("REINFORCE++ with the group's mean as baseline.", "以组均值为基线的 REINFORCE++。"),
            Text("128 prompts of 8 samples, lr 5e-7.", "128 个提示各 8 个样本，lr 5e-7。"),
        ),
        Preset(
            "gpg",
            {"objective": "reinforce", "advantage": "gpg", "reduction": "token_mean", "beta": 0.0},
            Text(
                "arXiv 2504.02546 with F_norm = 1, the factor as verl counts it (samples over those with a "
                "reward not 0); "
                "its own repository, AMAP-ML/GPG, counts samples over those of groups with a spread",
                "arXiv 2504.02546，F_norm = 1，系数按 verl 的算法（样本数除以奖励不为 0 的样本数）；"
                "其自己的代码库 AMAP-ML/GPG 除以有差异的组中的样本数",
            ),
            Text("The plain policy gradient of group-centred rewards.", "组内中心化奖励的朴素策略梯度。"),
            Text(
                "G 2 to 16 (mostly 6 to 8), lr 1e-6, 3e-6 for its 7B maths model (one configuration 2e-6). It fills "
                "batches until a share of the samples is in groups with a spread: .5 in the code, .6 in the README's "
                "best row: filters = drop_constant with refill.",
                "G 2 到 16（多为 6 到 8），lr 1e-6，其 7B 数学模型为 3e-6（有一个配置为 2e-6）。它会补足批次，直到一定"
                "比例的样本属于有差异的组：代码中为 .5，README 最好的一行为 .6；即 filters = drop_constant 加 refill。",
            ),
        ),
        Preset(
            "lite_ppo",
            {**_PPO, "advantage": "batch", "reduction": "token_mean", "beta": 0.0},
            Text(
                "arXiv 2508.08221, as TRL's paper index prints it; the clip range is PPO's",
                "arXiv 2508.08221，据 TRL 的论文索引；裁剪范围是 PPO 的",
            ),
            Text("Group mean, batch standard deviation, token mean.", "组均值、批次标准差、token 平均。"),
            Text(
                "G 8, temperature .99, top_p .99, top_k 100, one pass.",
                "G 8，temperature .99，top_p .99，top_k 100，训练一遍。",
            ),
        ),
    )
}
"""Every preset by the name used in recipes."""
