"""Words of other libraries for our choices (objective, advantage, KL, reduction). Torch-free."""

from __future__ import annotations

from anygrpo.choices.catalogue import names
from anygrpo.choices.presets import PRESETS
from anygrpo.recipe import verl_keys
from anygrpo.spoken import Text

_ESTIMATORS = {word: f'"{ours}"' for word, ours in verl_keys.ESTIMATORS.items() if word not in names("advantage")}
VALUES: dict[str, dict[str, str | Text]] = {
    "objective": {
        **{name: f'algorithm.preset = "{name}"' for name in PRESETS if name not in names("objective")},
        **dict.fromkeys(
            ("dpo", "ipo", "kto"),
            Text(
                "there is none here: they learn from pairs; demonstrations are a supervised stage",
                "这里没有：它们从成对的回答学习；示范数据用监督阶段",
            ),
        ),
        **dict.fromkeys(("vanilla", "clip", "ppo_clip", "bnpo"), '"ppo"'),
        **dict.fromkeys(("gspo_token", "gspo-token"), '"gspo"'),
        **dict.fromkeys(("reinforce++", "pg", "policy_gradient"), '"reinforce"'),
    },
    "advantage": {
        **_ESTIMATORS,
        **dict.fromkeys(("group", "group_norm", "grpo", "z", "std"), '"zscore"'),
        **dict.fromkeys(("none", "mean", "dr_grpo", "center", "centered", "mean_only"), '"centred"'),
        **dict.fromkeys(("rloo", "loo"), '"leave_one_out"'),
        "reinforce_plus_plus": Text(
            'here that is "overall" (verl), "whitened" (ms-swift)', '这里是 "overall"（verl），"whitened"（ms-swift）'
        ),
        "reinforce++": _ESTIMATORS["reinforce_plus_plus"],
        **dict.fromkeys(
            ("reinforce++_baseline", "reinforce++-baseline", "reinforce_baseline"),
            _ESTIMATORS["reinforce_plus_plus_baseline"],
        ),
        "gae": Text(
            'there is none here: no critic; "zscore" compares within the group',
            '这里没有：没有评论家网络；"zscore" 在组内比较',
        ),
    },
    "kl": {
        **dict.fromkeys(("low_var_kl", "schulman", "unbiased"), '"k3"'),
        **dict.fromkeys(("kl", "kl1", "naive"), '"k1"'),
        **dict.fromkeys(("kl3", "low_var"), '"k3"'),
        **dict.fromkeys(("mse", "squared"), '"k2"'),
        **dict.fromkeys(("full", "analytic"), '"exact"'),
        **dict.fromkeys(("none", "off", "false", "no"), "algorithm.beta = 0"),
    },
    "mode": {
        **dict.fromkeys(("on", "true", "yes", "enabled", "observe"), '"watch"'),
        **dict.fromkeys(("false", "no", "none", "disabled", "never"), '"off"'),
        **dict.fromkeys(("active", "auto", "steer"), '"act"'),
    },
    "dtype": {
        **dict.fromkeys(("bf16", "half_bf16"), '"bfloat16"'),
        **dict.fromkeys(("fp16", "half"), '"float16"'),
        **dict.fromkeys(("fp32", "float", "full"), '"float32"'),
    },
    "train": {
        **dict.fromkeys(("full", "full_finetune", "full_finetuning", "everything"), '"all"'),
        **dict.fromkeys(
            ("qlora", "lora_4bit"),
            Text('here that is "lora", with policy.quantize = "4bit"', '这里是 "lora"，加上 policy.quantize = "4bit"'),
        ),
        **dict.fromkeys(("peft", "adapter", "adapters"), '"lora"'),
    },
    "engine": dict.fromkeys(("hf", "transformers", "huggingface", "native", "default", "torch"), '"builtin"'),
    "parallel": {
        **dict.fromkeys(("ddp", "data", "none"), '"replicate"'),
        **dict.fromkeys(("fsdp2", "zero3", "deepspeed", "zero"), '"fsdp"'),
    },
    "language": {
        **dict.fromkeys(("cn", "zh-cn", "zh_cn", "chinese", "中文"), '"zh"'),
        **dict.fromkeys(("english", "en-us", "en_us", "英文"), '"en"'),
    },
    "reduction": {
        **dict.fromkeys(
            ("mean", "sum"),
            Text(
                'here that is "token_mean" over all decisions, "sequence_mean" over samples, or "constant"',
                '这里是 "token_mean"（对所有决策）、"sequence_mean"（对样本）或 "constant"',
            ),
        ),
        **dict.fromkeys(("token-mean", "dapo"), '"token_mean"'),
        **dict.fromkeys(("seq-mean-token-mean", "grpo"), '"sequence_mean"'),
        **dict.fromkeys(("seq-mean-token-sum-norm", "dr_grpo"), '"constant"'),
    },
}
"""Key -> another library's word for a choice -> ours, or what is said of it, whole."""
