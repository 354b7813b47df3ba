"""Words of other libraries that one key does not answer: a sentence each. Torch-free."""

from __future__ import annotations

from anygrpo.spoken import Text


def _here(english: str, chinese: str) -> Text:
    return Text(f"here that is {english}", f"这里是 {chinese}")


def _both(one: str, other: str) -> Text:
    return _here(f"{one} and {other}", f"{one} 和 {other}")


_SCHEDULE = '{ kind = "cosine", start = 1e-5, warmup = 10 }'
_SCORE = 'task.reward = { mode = "legacy", alpha = 0.2'
_MEMORY = "training.rows_per_block"
_ROWS = "algorithm.prompts_per_step times algorithm.group_size"
_ROWS_ZH = "algorithm.prompts_per_step 乘以 algorithm.group_size"

EXPLAINED: dict[str, Text] = {
    **dict.fromkeys(
        (
            "clip_epsilon",
            "clip_eps",
            "cliprange",
            "clip_range",
            "clip_ratio",
            "clip_param",
            "eps_clip",
            "ppo_clip",
            "clip",
        ),
        _both("algorithm.clip_low", "algorithm.clip_high"),
    ),
    "ppo_mini_batch_size": _here(
        "algorithm.minibatches, a count: train_batch_size / ppo_mini_batch_size",
        "algorithm.minibatches，是个数：train_batch_size / ppo_mini_batch_size",
    ),
    "steps_per_generation": _here(
        "algorithm.minibatches, a count: steps_per_generation / gradient_accumulation_steps",
        "algorithm.minibatches，是个数：steps_per_generation / gradient_accumulation_steps",
    ),
    **dict.fromkeys(
        ("loss_type", "policy_loss", "loss_mode", "importance_sampling_level"),
        _both("algorithm.objective", "algorithm.reduction"),
    ),
    "reward_weights": _here(
        "algorithm.component_weights, or weight in [[task.rewards]]",
        "algorithm.component_weights，或 [[task.rewards]] 里的 weight",
    ),
    "missing_eos_penalty": _here(
        'algorithm.overlong_buffer, or the filter "overlong_mask"',
        'algorithm.overlong_buffer，或过滤器 "overlong_mask"',
    ),
    **dict.fromkeys(
        ("reward_alpha", "reward_beta", "correctness"),
        _here(
            f"{_SCORE}, beta = 1.0 }}: of the beam score and of correctness",
            f"{_SCORE}, beta = 1.0 }}：束搜索得分与正确性的权重",
        ),
    ),
    "beam_score": _here(f"{_SCORE} }}: its weight", f"{_SCORE} }}：它的权重"),
    **dict.fromkeys(
        ("shot_num", "num_shots"),
        _here("policy.shots, and task.shots for what counts", "policy.shots；计入奖励的数目是 task.shots"),
    ),
    **dict.fromkeys(
        (
            "warmup",
            "warmup_steps",
            "warmup_ratio",
            "lr_scheduler_type",
            "lr_scheduler",
            "lr_schedule",
            "lr_warmup_steps",
            "lr_warmup_steps_ratio",
            "min_lr_ratio",
            "warmup_style",
        ),
        _here(f"a schedule: optimizer.learning_rate = {_SCHEDULE}", f"一个日程：optimizer.learning_rate = {_SCHEDULE}"),
    ),
    **dict.fromkeys(
        ("num_train_epochs", "total_epochs", "num_epochs", "num_episodes", "n_epochs"),
        _here("epochs of a stage: [[stages]] epochs = 1", "阶段的 epochs：[[stages]] epochs = 1"),
    ),
    **dict.fromkeys(
        ("train_batch_size", "rollout_batch_size"),
        _here(
            "algorithm.prompts_per_step (prompts, not samples)", "algorithm.prompts_per_step（是提示数，不是样本数）"
        ),
    ),
    **dict.fromkeys(
        ("train_type", "tuner_type", "use_peft", "peft_type", "finetuning_type"),
        _here("policy.train, and the table policy.lora", "policy.train，以及表 policy.lora"),
    ),
    **dict.fromkeys(
        ("rlhf_type", "stage", "trainer_type"),
        _here("algorithm.preset, or algorithm.objective", "algorithm.preset，或 algorithm.objective"),
    ),
    **dict.fromkeys(
        ("tensor_parallel_size", "vllm_tensor_parallel_size", "tp", "fsdp", "deepspeed", "zero_stage", "device_map"),
        _both("training.parallel", "torchrun"),
    ),
    **dict.fromkeys(
        ("log_completions", "num_completions_to_print", "log_samples"),
        _both("training.samples_every", "training.samples_kept"),
    ),
    **dict.fromkeys(
        ("warmup_epochs", "grpo_start_epoch", "rl_start_epoch", "start_epoch", "sup_epochs", "warmup_phase"),
        _here("a stage with its own length: [[stages]]", "一个有自己长度的阶段：[[stages]]"),
    ),
    "gradient_accumulation_steps": _here(
        f"{_MEMORY} (any value gives the same gradient)", f"{_MEMORY}（取什么值，梯度都相同）"
    ),
    **dict.fromkeys(
        ("batch_size", "global_batch_size"),
        _here(f"{_ROWS}; for memory {_MEMORY}", f"{_ROWS_ZH}；为节省内存则是 {_MEMORY}"),
    ),
    **dict.fromkeys(
        ("mini_batch_size", "minibatch_size"),
        _here(
            "algorithm.minibatches, a count: samples of a step / mini-batch size",
            "algorithm.minibatches，是个数：一步的样本数 / 小批大小",
        ),
    ),
    "generation_batch_size": _here(_ROWS, _ROWS_ZH),
    **dict.fromkeys(
        (
            "val_files",
            "eval_dataset",
            "val_data",
            "eval_data",
            "validation_split",
            "val_split",
            "eval_split",
            "test_split",
            "validation_data",
            "eval_path",
        ),
        _here("task.held_out_share, or task.held_out_path", "task.held_out_share，或 task.held_out_path"),
    ),
    "multi_turn_enable": _here(
        "policy.tools, policy.environment and policy.max_turns", "policy.tools、policy.environment 和 policy.max_turns"
    ),
    "gamma": _here("algorithm.discount (of turns; there is no critic)", "algorithm.discount（按轮次；没有评论家网络）"),
}
"""A word of TRL, verl, OpenRLHF, diffusers ... -> what is said of it, whole."""

TWO: dict[str, Text] = {
    "epsilon": Text(
        "algorithm.clip_low and algorithm.clip_high are the clip range; "
        "algorithm.epsilon is added to a standard deviation",
        "algorithm.clip_low 和 algorithm.clip_high 是裁剪范围；algorithm.epsilon 加在标准差上",
    ),
    "epochs": Text(
        "epochs of a stage ([[stages]] epochs = 1) are passes over the prompts; algorithm.epochs those over a rollout",
        "阶段的 epochs（[[stages]] epochs = 1）是遍历提示的轮数；algorithm.epochs 是遍历一批采样的轮数",
    ),
    "kl_penalty": Text(
        "algorithm.beta is the weight of the KL; algorithm.kl is its estimator",
        "algorithm.beta 是 KL 的权重；algorithm.kl 是它的估计",
    ),
    "temperature": Text(
        "algorithm.temperature or policy.temperature, of samples; algorithm.rce_temperature weighs stored rewards",
        "algorithm.temperature 或 policy.temperature 用于采样；algorithm.rce_temperature 给存储的奖励加权",
    ),
}
"""A key of ours that elsewhere means something else: what is said where it is given without its table."""
