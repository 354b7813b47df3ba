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


_LORA = Text('here that is policy.train: "lora", "last_n" or "all"', '这里是 policy.train："lora"、"last_n" 或 "all"')
_EXAMPLES = Text("here that is [[task.examples]]", "这里是 [[task.examples]]")
_MACHINE = Text("no key: how work is laid on the machine is found here", "不需要键：怎样摆放到机器上由程序自己决定")
_LIMIT = Text(
    "no key for the training rows: a run takes as many as its steps need; evaluation.prompts bounds an evaluation",
    "训练数据没有上限键：步数决定用多少；evaluation.prompts 限制每次评测",
)
_TIME = Text(
    "no key: Ctrl-C saves and stops, and anygrpo train --resume FOLDER goes on",
    "不需要键：Ctrl-C 会保存并停止，anygrpo train --resume 文件夹 会继续",
)


def _here(key: str) -> Text:
    return Text(f"here that is {key}", f"这里是 {key}")


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
    "training": {
        "clip": _CLIPS,
        "prompts": _PROMPTS,
        "workers": Text(
            "task.workers runs rewards; how other work is laid on the machine is found here",
            "task.workers 用于运行奖励；其他工作怎样摆放由程序自己决定",
        ),
        "amp": Text("here that is policy.dtype", "这里是 policy.dtype"),
        "log_every": Text("no key: every step is kept in metrics.jsonl", "不需要键：每一步都写进 metrics.jsonl"),
        **dict.fromkeys(("compile", "torch_compile"), _MACHINE),
        **dict.fromkeys(("time_limit", "max_time", "max_hours", "max_minutes", "timeout"), _TIME),
    },
    "algorithm": {
        "eps": _EPS,
        **dict.fromkeys(
            ("reference_free", "ref_free", "no_kl"),
            Text("here that is algorithm.beta = 0: no KL at all", "这里是 algorithm.beta = 0：没有 KL"),
        ),
        **dict.fromkeys(
            ("normalize_rewards", "normalise_rewards", "reward_norm", "whiten", "normalise"),
            Text(
                'here that is algorithm.advantage ("zscore", "whitened", "running", ...)',
                '这里是 algorithm.advantage（"zscore"、"whitened"、"running" 等）',
            ),
        ),
        **dict.fromkeys(
            ("rank_advantage", "rank_advantages", "rank"),
            Text('here that is algorithm.advantage = "rank"', '这里是 algorithm.advantage = "rank"'),
        ),
        **dict.fromkeys(
            ("reward_clip", "clip_reward", "clip_rewards", "reward_range"),
            Text(
                "no key: rewards are taken as they are; algorithm.advantage_clip bounds advantages",
                "没有对应的键：奖励照原样使用；algorithm.advantage_clip 限制优势",
            ),
        ),
        **dict.fromkeys(("rollouts", "num_rollouts", "completions", "num_completions"), _GROUP),
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
        **dict.fromkeys(("peft", "use_peft", "use_lora", "finetuning_type", "freeze"), _LORA),
        **dict.fromkeys(("layers", "n_layers", "num_layers", "unfreeze"), _here("policy.last_n_layers")),
        **dict.fromkeys(("vllm", "backend"), Text("here that is policy.engine", "这里是 policy.engine")),
        **dict.fromkeys(("system_prompt", "system_message"), _here("policy.system")),
        **dict.fromkeys(("eos_token", "eos_token_id", "eos_ids"), _here("policy.eos")),
        **dict.fromkeys(("stop_token", "stop_tokens", "stop_strings", "stop_sequences"), _here("policy.stop")),
        **dict.fromkeys(
            ("num_beams", "beams", "beam_size"),
            Text("no key: training samples; evaluation is greedy", "不需要键：训练时采样，评测取最可能的"),
        ),
        **dict.fromkeys(
            ("tokenizer", "tokenizer_name", "tokenizer_path", "processor"),
            Text(
                "no key: a model's tokenizer is the one in its folder (policy.model)",
                "不需要键：用模型文件夹（policy.model）里的分词器",
            ),
        ),
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
        **dict.fromkeys(("system_prompt", "system_message"), _here("task.system")),
        **dict.fromkeys(
            ("prompt", "question", "question_column", "input_column", "text_column"), _here("task.prompt_column")
        ),
        **dict.fromkeys(("limit", "max_samples", "max_rows", "train_size"), _LIMIT),
        **dict.fromkeys(("few_shot", "fewshot", "num_shots", "n_shots", "demonstrations"), _EXAMPLES),
        **dict.fromkeys(("num_proc", "num_workers", "preprocessing_num_workers"), _MACHINE),
        **dict.fromkeys(
            ("format", "template", "prompt_template", "chat_template"),
            Text(
                "no key: a prompt is a text or a list of messages; policy.chat_template applies the model's template",
                "不需要键：提示是一段文字或消息列表；policy.chat_template 套用模型的模板",
            ),
        ),
    },
    "task.rewards": {
        "function": Text(
            "kind names a built-in reward, function = \"file.py:name\" one of your own: keep one of them",
            "kind 是内置奖励，function = \"文件.py:名称\" 是自己的奖励：只留一个",
        ),
        **dict.fromkeys(
            ("file", "path", "module", "func"),
            Text('here that is function = "file.py:name"', '这里是 function = "文件.py:名称"'),
        ),
        **dict.fromkeys(("args", "kwargs", "params", "parameters"), _called("arguments")),
        **dict.fromkeys(("coef", "scale", "alpha", "factor"), _called("weight")),
    },
    "evaluation": {
        **dict.fromkeys(("split", "dataset", "path", "data", "file"), _HELD_OUT),
        **dict.fromkeys(("interval", "freq", "frequency", "steps"), _called("every")),
        **dict.fromkeys(("n", "n_samples", "num_samples"), _called("pass_samples")),
        **dict.fromkeys(("k", "pass_at_k"), _called("pass_k")),
        **dict.fromkeys(
            ("best", "save_best", "load_best_model_at_end", "keep_best"),
            Text(
                "no key: the best checkpoint by evaluation.metric is always kept",
                "不需要键：按 evaluation.metric 最好的检查点总会留下",
            ),
        ),
        **dict.fromkeys(("batch_size", "max_samples", "limit"), _called("prompts")),
    },
    "doctor": {
        **dict.fromkeys(("interval", "freq", "frequency"), _called("every")),
        **dict.fromkeys(
            ("enable", "enabled"),
            Text('here that is doctor.mode = "off", "watch" ...', '这里是 doctor.mode = "off"、"watch" 等'),
        ),
        "lang": _called("language"),
        "fail_on": Text(
            "here that is a flag: anygrpo doctor RUN --fail-on warning",
            "这里是命令行参数：anygrpo doctor 运行文件夹 --fail-on warning",
        )
    },
}  # fmt: skip
"""Table, dotted ("" at the top) -> a word that is no key there -> what is said of it, whole."""

TABLES: dict[str, str] = {
    **dict.fromkeys(("train", "trainer", "run", "training_args", "logging", "checkpoint"), "training"),
    **dict.fromkeys(("eval", "evaluate", "validation", "test", "val"), "evaluation"),
    **dict.fromkeys(("optim", "optimiser", "adam", "adamw"), "optimizer"),
    **dict.fromkeys(("algo", "grpo", "ppo", "rl", "loss"), "algorithm"),
    **dict.fromkeys(("model", "actor", "network", "sampling", "generation"), "policy"),
    **dict.fromkeys(("data", "dataset", "env", "environment"), "task"),
    **dict.fromkeys(("diagnosis", "monitor", "watch"), "doctor"),
}
"""A whole table's name elsewhere -> the table here that holds such settings."""
