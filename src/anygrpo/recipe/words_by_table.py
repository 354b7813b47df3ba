"""Words that mean something of their own in one table of a recipe: what is said of each there. Torch-free."""

from __future__ import annotations

from anygrpo.spoken import Text

_ADAMW = Text("no key: the optimizer is AdamW", "不需要键：优化器是 AdamW")
_SCHEDULE = Text(
    'here that is a schedule: optimizer.learning_rate = { kind = "cosine", start = 1e-5, end = 0.0, warmup = 10 }',
    '这里是一个日程：optimizer.learning_rate = { kind = "cosine", start = 1e-5, end = 0.0, warmup = 10 }',
)
_EPS = Text(
    "algorithm.clip_low and algorithm.clip_high are the clip range; algorithm.epsilon is added to a standard "
    "deviation; optimizer.eps is AdamW's",
    "algorithm.clip_low 和 algorithm.clip_high 是裁剪范围；algorithm.epsilon 加在标准差上；optimizer.eps 属于 AdamW",
)
_OLD = Text("no key: the old policy is the one that sampled the step", "不需要键：旧策略就是采样这一步的策略")
_REFERENCE = Text("no key: the reference is the policy as a stage finds it", "不需要键：参考策略就是阶段开始时的策略")
_DATA = Text(
    'here that is task.kind = "data" with task.path: a file, a folder or a name of the Hub',
    '这里是 task.kind = "data" 和 task.path：文件、文件夹或 Hub 名称',
)
_DROPOUT = Text(
    "no key: adapters have no dropout, since sampling and scoring must be one policy",
    "没有对应的键：适配器没有 dropout，因为采样与打分必须是同一个策略",
)
_SHUFFLED = Text("no key: every pass over the data is a permutation of its own", "不需要键：每遍数据各有自己的随机排列")
_HELD_OUT = Text(
    "here that is in [task]: task.held_out_path and task.held_out_split, or task.held_out_share",
    "这里写在 [task]：task.held_out_path 和 task.held_out_split，或 task.held_out_share",
)

_GROUP = Text("here that is algorithm.group_size", "这里是 algorithm.group_size")
_PROMPTS = Text(
    "algorithm.prompts_per_step are the prompts of a step; evaluation.prompts those of an evaluation",
    "algorithm.prompts_per_step 是一步的提示数；evaluation.prompts 是一次评测的提示数",
)
_CLIPS = Text(
    "optimizer.grad_clip bounds the gradient; algorithm.clip_low and algorithm.clip_high bound the ratio",
    "optimizer.grad_clip 限制梯度；algorithm.clip_low 和 algorithm.clip_high 限制比率",
)


def _called(name: str) -> Text:
    return Text(f"it is called {name!r} here", f"这里叫 {name!r}")


BY_TABLE: dict[str, dict[str, Text]] = {
    "": {
        **dict.fromkeys(("n", "g", "n_samples", "num_samples"), _GROUP),
        **dict.fromkeys(("data", "file"), _DATA),
        "weights": Text("here that is policy.model", "这里是 policy.model"),
        "prompts": _PROMPTS,
    },
    "optimizer": {
        **dict.fromkeys(("name", "type", "kind", "optimizer", "class", "fused", "foreach", "amsgrad"), _ADAMW),
        **dict.fromkeys(
            ("scheduler", "schedule", "min_lr", "end_lr", "lr_min", "lr_decay", "cosine", "warmup"), _SCHEDULE
        ),
        "epsilon": Text("here that is optimizer.eps", "这里是 optimizer.eps"),
        "clip": Text("here that is optimizer.grad_clip", "这里是 optimizer.grad_clip"),
        "decay": Text(
            "optimizer.weight_decay draws weights to 0; a rate that falls is a schedule as optimizer.learning_rate",
            "optimizer.weight_decay 使权重趋于 0；下降的学习率是 optimizer.learning_rate 的一个日程",
        ),
        "momentum": Text(
            "here that is the first of optimizer.betas (AdamW)", "这里是 optimizer.betas 的第一个数（AdamW）"
        ),
    },
    "training": {"clip": _CLIPS, "prompts": _PROMPTS},
    "algorithm": {
        "eps": _EPS,
        "prompts": _PROMPTS,
        "loss": Text(
            "here that is algorithm.objective and algorithm.reduction",
            "这里是 algorithm.objective 和 algorithm.reduction",
        ),
        **dict.fromkeys(("old_policy_sync", "old_policy_update", "old_policy_every", "update_old_every"), _OLD),
        **dict.fromkeys(("ref_model", "reference_model", "ref_policy", "reference", "reference_policy"), _REFERENCE),
        **dict.fromkeys(
            ("reward_scale", "reward_scaling", "reward_weight"),
            Text("here that is weight in [[task.rewards]]", "这里是 [[task.rewards]] 里的 weight"),
        ),
    },
    "policy": {
        **dict.fromkeys(("ref_model", "reference_model", "ref_policy", "reference"), _REFERENCE),
        **dict.fromkeys(
            ("max_length", "max_seq_length", "max_seq_len", "max_model_len", "seq_len", "context_length"),
            Text(
                "policy.max_new_tokens is the longest answer; prompts are never cut",
                "policy.max_new_tokens 是最长的回答；提示从不截断",
            ),
        ),
        **dict.fromkeys(
            ("path", "name", "checkpoint", "name_or_path", "weights_path"),
            Text("here that is policy.model", "这里是 policy.model"),
        ),
        "dropout": _DROPOUT,
        **dict.fromkeys(("n", "n_samples", "num_samples"), _GROUP),
        "targets": Text("here that is targets in [policy.lora]", "这里是 [policy.lora] 里的 targets"),
        "revision": Text(
            'of a model of the Hub it follows the name: policy.model = "owner/name@revision"',
            'Hub 模型的版本写在名称之后：policy.model = "owner/name@revision"',
        ),
    },
    "policy.lora": {
        **dict.fromkeys(("dropout", "lora_dropout"), _DROPOUT),
        **dict.fromkeys(
            ("enable", "enabled"),
            Text(
                "no key: adapters are trained where [policy.lora] stands", "不需要键：写了 [policy.lora] 就训练适配器"
            ),
        ),
    },
    "task": {
        "weights": Text(
            "here that is weight in [[task.rewards]], or algorithm.component_weights",
            "这里是 [[task.rewards]] 里的 weight，或 algorithm.component_weights",
        ),
        **dict.fromkeys(("data", "path", "dataset", "dataset_name", "dataset_path", "train_file", "data_path"), _DATA),
        **dict.fromkeys(("shuffle", "shuffle_data"), _SHUFFLED),
    },
    "evaluation": {
        **dict.fromkeys(("split", "dataset", "path", "data", "file"), _HELD_OUT),
        **dict.fromkeys(("interval", "freq", "frequency"), _called("every")),
        **dict.fromkeys(("n", "n_samples", "num_samples"), _called("pass_samples")),
    },
    "doctor": {
        **dict.fromkeys(("interval", "freq", "frequency"), _called("every")),
        **dict.fromkeys(("enable", "enabled"), _called("mode")),
        "lang": _called("language"),
        "fail_on": Text(
            "here that is a flag: anygrpo doctor RUN --fail-on warning",
            "这里是命令行参数：anygrpo doctor 运行文件夹 --fail-on warning",
        )
    },
}  # fmt: skip
"""Table, dotted ("" at the top) -> a word that is no key there -> what is said of it, whole."""
