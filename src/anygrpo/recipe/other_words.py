"""Words of other libraries, and what means the same here: of keys (`HERE`, `OURS`, `TWO`) and of choices (`VALUES`).
Torch-free."""

from __future__ import annotations

from anygrpo.choices.catalogue import names
from anygrpo.choices.presets import PRESETS

HERE: dict[str, tuple[str, ...]] = {
    "adapter": ("lora",),
    "batch": ("batch_size",),
    "data": ("path",),
    "evaluation_queries": ("held_out",),
    "factory": ("function",),
    "file": ("path",),
    "held_out_captions": ("held_out",),
    "held_out_draws": ("held_out_repeats",),
    "initial": ("model",),
    "model_path": ("model",),
    "num_steps": ("steps",),
    "pool_size": ("pool",),
    "kwargs": ("arguments",),
    "lora_alpha": ("alpha",),
    "model_name": ("model",),
    "model_name_or_path": ("model",),
    "network": ("function",),
    "options": ("arguments",),
    "pipeline": ("model",),
    "precision": ("dtype",),
    "r": ("rank",),
    "settings": ("arguments",),
    "split": ("held_out_split",),
    "target_modules": ("targets",),
    "test_queries": ("held_out_test",),
    "torch_dtype": ("dtype",),
    "train_split": ("split",),
    "validation": ("held_out_share",),
    "validation_queries": ("held_out_validation",),
    "weights": ("model",),
}
"""Another word -> our keys with the same meaning in one table, the first that it has."""

_CLIP = "algorithm.clip_low and algorithm.clip_high"
OURS: dict[str, str] = {
    **dict.fromkeys(("kl_beta", "beta_kl", "kl_coef", "kl_coeff", "kl_loss_coef", "init_kl_coef"), "algorithm.beta"),
    **dict.fromkeys(
        ("clip_epsilon", "clip_eps", "cliprange", "clip_range", "clip_ratio", "clip_param", "eps_clip", "ppo_clip"),
        _CLIP,
    ),
    **dict.fromkeys(("clip_ratio_low", "epsilon_low", "cliprange_low"), "algorithm.clip_low"),
    **dict.fromkeys(("clip_ratio_high", "epsilon_high", "cliprange_high"), "algorithm.clip_high"),
    **dict.fromkeys(("clip_ratio_c", "delta"), "algorithm.dual_clip"),
    **dict.fromkeys(("num_generations", "rollout_n", "n_samples_per_prompt", "generations"), "algorithm.group_size"),
    **dict.fromkeys(("ppo_epochs", "num_iterations", "update_epochs"), "algorithm.epochs"),
    **dict.fromkeys(("num_mini_batch", "num_minibatches", "steps_per_generation"), "algorithm.minibatches"),
    **dict.fromkeys(("adv_estimator", "advantage_estimator", "scale_rewards", "normalize"), "algorithm.advantage"),
    **dict.fromkeys(("loss_type", "policy_loss", "loss_mode"), "algorithm.objective and algorithm.reduction"),
    **dict.fromkeys(("loss_agg_mode", "loss_aggregation"), "algorithm.reduction"),
    **dict.fromkeys(("entropy", "entropy_coeff", "ent_coef", "entropy_bonus"), "algorithm.entropy_coef"),
    **dict.fromkeys(("kl_estimator", "kl_loss_type", "kl_penalty"), "algorithm.kl"),
    **dict.fromkeys(("kl_ctrl", "kl_ctrl_type"), "algorithm.kl_controller"),
    **dict.fromkeys(("tis_cap", "vllm_importance_sampling_cap"), "algorithm.importance_cap"),
    **dict.fromkeys(("reward_weights",), "algorithm.component_weights, or weight in [[task.rewards]]"),
    **dict.fromkeys(("lr", "actor_lr", "step_size", "rl_lr", "grpo_lr"), "optimizer.learning_rate"),
    **dict.fromkeys(("lambda_sup", "lambda_sft", "supervised_weight"), "algorithm.lambda_supervised"),
    **dict.fromkeys(("use_rank_advantage",), 'algorithm.advantage = "rank"'),
    **dict.fromkeys(("require_positive_query",), 'task.queries = "positive"'),
    **dict.fromkeys(("reward_alpha", "reward_beta"), "task.reward.alpha and task.reward.beta (legacy modes)"),
    **dict.fromkeys(("shot_num", "num_shots"), "policy.shots, and task.shots for what counts"),
    **dict.fromkeys(("max_grad_norm", "grad_norm", "clip_grad", "gradient_clip"), "optimizer.grad_clip"),
    **dict.fromkeys(("adam_beta1", "adam_beta2", "beta1", "beta2"), "optimizer.betas"),
    **dict.fromkeys(("adam_epsilon", "adam_eps"), "optimizer.eps"),
    **dict.fromkeys(("wd",), "optimizer.weight_decay"),
    **dict.fromkeys(
        ("warmup", "warmup_steps", "warmup_ratio", "lr_scheduler_type", "lr_scheduler", "lr_schedule"),
        'a schedule: optimizer.learning_rate = { kind = "cosine", start = 1e-5, warmup = 10 }',
    ),
    **dict.fromkeys(("max_steps", "total_steps", "total_training_steps"), "training.steps"),
    **dict.fromkeys(("num_train_epochs", "total_epochs"), "epochs of a stage: [[stages]] epochs = 1"),
    **dict.fromkeys(("per_device_train_batch_size", "micro_batch_size"), "training.rows_per_block"),
    **dict.fromkeys(("train_batch_size", "rollout_batch_size"), "algorithm.prompts_per_step (prompts, not samples)"),
    **dict.fromkeys(("save_steps", "save_freq", "save_every"), "training.checkpoint_every"),
    **dict.fromkeys(("save_total_limit", "max_checkpoints"), "training.keep_checkpoints"),
    **dict.fromkeys(("report_to", "logger"), "training.sinks"),
    **dict.fromkeys(("resume", "resume_from", "resume_from_checkpoint"), "anygrpo train --resume FOLDER"),
    **dict.fromkeys(
        ("gpus", "num_gpus", "n_gpus", "n_gpus_per_node"), "torchrun --nproc-per-node 2 -m anygrpo train ..."
    ),
    **dict.fromkeys(("bf16", "fp16"), 'policy.dtype = "bfloat16"'),
    **dict.fromkeys(("lora_rank", "lora_r"), "policy.lora.rank"),
    **dict.fromkeys(("gradient_accumulation_steps",), "training.rows_per_block (any value gives the same gradient)"),
    **dict.fromkeys(
        ("batch_size", "mini_batch_size"),
        "algorithm.prompts_per_step times algorithm.group_size; for memory training.rows_per_block",
    ),
    **dict.fromkeys(
        ("gae_lambda", "lam", "vf_coef", "value_loss_coef"),
        "nothing: there is no critic; advantages come from the group",
    ),
    **dict.fromkeys(("gamma",), "algorithm.discount (of turns; there is no critic)"),
    **dict.fromkeys(("output_dir", "logging_dir", "run_dir"), "folder"),
    **dict.fromkeys(("run_name", "experiment_name"), "name"),
    **dict.fromkeys(("eval_steps", "eval_every", "test_freq"), "evaluation.every"),
    **dict.fromkeys(("metric_for_best_model",), "evaluation.metric"),
    **dict.fromkeys(("early_stopping_patience",), "evaluation.patience"),
    **dict.fromkeys(("max_completion_length", "max_response_length", "max_tokens"), "policy.max_new_tokens"),
    **dict.fromkeys(("reward_funcs", "reward_functions", "reward_fn"), "[[task.rewards]]"),
    **dict.fromkeys(("dataset", "dataset_name", "train_files"), "task.path"),
    **dict.fromkeys(("use_vllm",), 'policy.engine = "vllm"'),
    **dict.fromkeys(("num_inference_steps", "sample_num_steps"), "policy.steps"),
    **dict.fromkeys(("guidance_scale", "sample_guidance_scale"), "policy.guidance"),
    **dict.fromkeys(("mask_truncated_completions", "overlong_filtering"), 'algorithm.filters = ["overlong_mask"]'),
}
"""A word of TRL, verl, OpenRLHF, diffusers ... -> what means the same here."""

TWO: dict[str, str] = {
    "epsilon": "algorithm.clip_low and algorithm.clip_high are the clip range; "
    "algorithm.epsilon is added to a standard deviation",
    "epochs": "epochs of a stage ([[stages]] epochs = 1) are passes over the prompts; "
    "algorithm.epochs those over a rollout",
    "temperature": "algorithm.temperature or policy.temperature, of samples; "
    "algorithm.rce_temperature weighs stored rewards",
}
"""A key of ours that elsewhere means something else: what is said where it is given without its table."""

VALUES: dict[str, dict[str, str]] = {
    "objective": {
        **{name: f'algorithm.preset = "{name}"' for name in PRESETS if name not in names("objective")},
        **dict.fromkeys(("dpo", "ipo", "kto"), "nothing: they learn from pairs; demonstrations are a supervised stage"),
        **dict.fromkeys(("vanilla", "clip", "ppo_clip", "bnpo"), '"ppo"'),
        **dict.fromkeys(("gspo_token", "gspo-token"), '"gspo"'),
        **dict.fromkeys(("reinforce++", "pg", "policy_gradient"), '"reinforce"'),
    },
    "advantage": {
        **dict.fromkeys(("group", "grpo", "z", "std"), '"zscore"'),
        **dict.fromkeys(("none", "mean", "dr_grpo", "center", "centered", "mean_only"), '"centred"'),
        **dict.fromkeys(("rloo", "loo"), '"leave_one_out"'),
        **dict.fromkeys(("reinforce_plus_plus",), '"batch"'),
        **dict.fromkeys(("gae",), 'nothing: there is no critic; "zscore" compares within the group'),
    },
    "kl": {
        **dict.fromkeys(("low_var_kl", "schulman", "unbiased"), '"k3"'),
        **dict.fromkeys(("kl", "kl1", "naive"), '"k1"'),
        **dict.fromkeys(("kl3", "low_var"), '"k3"'),
        **dict.fromkeys(("mse", "squared"), '"k2"'),
        **dict.fromkeys(("full", "analytic"), '"exact"'),
    },
    "reduction": {
        **dict.fromkeys(("token-mean", "dapo"), '"token_mean"'),
        **dict.fromkeys(("seq-mean-token-mean", "grpo"), '"sequence_mean"'),
        **dict.fromkeys(("seq-mean-token-sum-norm", "dr_grpo"), '"constant"'),
    },
}
"""Key -> another library's word for a choice -> ours."""
