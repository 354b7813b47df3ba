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
            "arXiv 2402.03300, section 4.2 (KL .04); the paper does not state its clip range, .2 is PPO's",
            Text("GRPO as DeepSeekMath trained it.", "DeepSeekMath 论文中的 GRPO。"),
            "G 64, 1024 samples a step, lr 1e-6, 1024 tokens, one update a rollout. The gradient of the KL is the "
            "right one here (docs/algorithm.md), not that of k3 in the loss.",
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
            "arXiv 2503.14476, section 4.1 (clip, KL), as TRL's paper index and verl's recipe (10 draws) print it",
            Text(
                "DAPO: higher upper clip, token mean, groups without spread replaced.",
                "DAPO：更高的裁剪上界、token 平均、替换奖励无差异的组。",
            ),
            "G 16, 512 prompts, lr 1e-6, 20480 tokens, of which overlong_buffer = 4096 (as in verl's recipe): set it "
            "for your limit.",
        ),
        Preset(
            "dr_grpo",
            {**_PPO, "advantage": "centred", "reduction": "constant", "beta": 0.0},
            "arXiv 2503.20783, as its repository's training scripts set it; the clip range is PPO's",
            Text(
                "GRPO without the two divisions that bias it: by a sample's length and by a group's spread.",
                "去掉 GRPO 中引入偏差的两个除法：样本长度与组内标准差。",
            ),
            "G 8, 128 prompts, 3000 tokens, lr 1e-6 (its repository's scripts). The constant is the "
            "policy's limit, or `horizon`.",
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
            "arXiv 2507.18071 (v2), section 5.1, as TRL's paper index prints it",
            Text("One clipped ratio a sample.", "每个样本一个裁剪比值。"),
            "lr 1e-6, 512 prompts of 16 samples in verl's example.",
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
            "arXiv 2506.13585 sets no floor and tunes its cap (as Trinity-RFT quotes it; no number is quoted, the "
            "paper was not read); 5 (1 + 4) is ScaleRL's, as TRL's paper index prints it",
            Text("The weight of a decision is limited, its gradient is not.", "限制决策的权重，不限制其梯度。"),
            "In verl and NeMo-RL the same number means 1 + eps: 5 there is clip_high = 5 here.",
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
            "arXiv 2510.13786, cap and batch scale as TRL's paper index prints them; the mean over prompts as "
            "summaries of the paper say",
            Text("CISPO with batch-wide scale and prompts of equal weight.", "CISPO，批次尺度，各提示权重相同。"),
            "G 16, logits in float32.",
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
            "arXiv 2511.20347, as TRL's paper index prints it",
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
            "arXiv 2602.05261, section 5.1 (clip range), as TRL's paper index prints it: each "
            "sample's loss times its length",
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
            "arXiv 2402.14740, appendix C (KL .03), as TRL's paper index prints it",
            Text("REINFORCE with the other samples as baseline.", "以同组其他样本为基线的 REINFORCE。"),
            "G 2 or 4, 512 samples a step, lr 1e-6. The paper subtracts the KL from the reward; here it is a loss "
            "of its own.",
        ),
        Preset(
            "reinforce_pp",
            {**_PPO, "advantage": "overall", "reduction": "token_mean", "beta": 1e-3, "kl": "k2"},
            "arXiv 2501.03262; KL 1e-3 is RLinf's setting of it, subtracted from the reward there",
            Text(
                "REINFORCE++: whitened over the batch, one sample a prompt is enough.",
                "REINFORCE++：批次内白化，每个提示一个样本即可。",
            ),
        ),
        Preset(
            "reinforce_pp_baseline",
            {**_PPO, "clip_high": 0.27, "advantage": "whitened", "reduction": "token_mean", "beta": 1e-4, "kl": "k2"},
            "arXiv 2501.03262; clip .2/.27 and k2 with 1e-4 as OpenRLHF's ProRL v2 script; its plain example has 1e-5",
            Text("REINFORCE++ with the group's mean as baseline.", "以组均值为基线的 REINFORCE++。"),
            "128 prompts of 8 samples, lr 5e-7.",
        ),
        Preset(
            "gpg",
            {"objective": "reinforce", "advantage": "gpg", "reduction": "token_mean", "beta": 0.0},
            "arXiv 2504.02546 with F_norm = 1, the factor as verl counts it (samples over those with a reward not 0); "
            "its own repository, AMAP-ML/GPG, counts samples over those of groups with a spread",
            Text("The plain policy gradient of group-centred rewards.", "组内中心化奖励的朴素策略梯度。"),
            "G 6 to 8, lr 1e-6 (2e-6 for its 7B maths model), as that repository's configurations set them. It fills "
            "batches until 60% of the groups have a spread (README): filters = drop_constant with refill.",
        ),
        Preset(
            "lite_ppo",
            {**_PPO, "advantage": "batch", "reduction": "token_mean", "beta": 0.0},
            "arXiv 2508.08221, as TRL's paper index prints it; the clip range is PPO's",
            Text("Group mean, batch standard deviation, token mean.", "组均值、批次标准差、token 平均。"),
            "G 8, temperature .99, top_p .99, top_k 100, one pass.",
        ),
    )
}
"""Every preset by the name used in recipes."""
