"""Words of other libraries, and what means the same here: of keys (`HERE`, `OURS`). Torch-free.

What needs a sentence: `recipe/words_explained.py`. Of choices: `recipe/other_values.py`. What has no counterpart:
`recipe/no_counterpart.py`.
"""

from __future__ import annotations

HERE: dict[str, tuple[str, ...]] = {
    "adapter": ("lora",),
    "answer": ("answer_column",),
    "batch": ("batch_size",),
    "g": ("group_size",),
    "model_id": ("model",),
    "n": ("group_size",),
    "n_samples": ("group_size",),
    "num_samples": ("group_size",),
    "pretrained_model_name_or_path": ("model",),
    "reward": ("rewards",),
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

ANYWHERE = (
    "adapter", "model_id", "pretrained_model_name_or_path", "reward", "evaluation_queries", "held_out_captions",
    "held_out_draws", "model_path", "num_steps", "model_name", "model_name_or_path", "precision", "test_queries",
    "torch_dtype", "validation_queries",
)  # fmt: skip
"""Those of them that mean the same in whichever table they are written; of the others each table has its own meaning
(a task's `weights` are no model)."""

OURS: dict[str, str] = {
    **dict.fromkeys(("kl_beta", "beta_kl", "kl_coef", "kl_coeff", "kl_loss_coef", "init_kl_coef"), "algorithm.beta"),
    **dict.fromkeys(("clip_ratio_low", "epsilon_low", "cliprange_low"), "algorithm.clip_low"),
    **dict.fromkeys(("clip_ratio_high", "epsilon_high", "cliprange_high"), "algorithm.clip_high"),
    **dict.fromkeys(("clip_ratio_c", "delta"), "algorithm.dual_clip"),
    **dict.fromkeys(
        (
            "num_generations",
            "rollout_n",
            "n_samples_per_prompt",
            "generations",
            "num_return_sequences",
            "grpo_group_size",
            "num_samples_per_prompt",
            "samples_per_prompt",
            "rollout_num_samples",
        ),
        "algorithm.group_size",
    ),
    **dict.fromkeys(
        ("ppo_epochs", "num_iterations", "update_epochs", "num_ppo_epochs", "num_inner_epochs", "max_epochs", "mu"),
        "algorithm.epochs",
    ),
    **dict.fromkeys(("num_mini_batch", "num_minibatches"), "algorithm.minibatches"),
    **dict.fromkeys(
        (
            "adv_estimator",
            "advantage_estimator",
            "scale_rewards",
            "normalize",
            "norm_adv_by_std_in_grpo",
            "advantage_normalization",
        ),
        "algorithm.advantage",
    ),
    **dict.fromkeys(
        ("baseline", "norm_adv", "norm_advantages", "normalize_advantage", "normalize_advantages", "advantage_type"),
        "algorithm.advantage",
    ),
    **dict.fromkeys(("std_eps", "adv_eps", "advantage_eps", "norm_eps", "std_epsilon"), "algorithm.epsilon"),
    **dict.fromkeys(("loss_agg_mode", "loss_aggregation"), "algorithm.reduction"),
    **dict.fromkeys(
        (
            "entropy",
            "entropy_coeff",
            "entropy_coefficient",
            "entropy_beta",
            "entropy_weight",
            "ent_coef",
            "entropy_bonus",
        ),
        "algorithm.entropy_coef",
    ),
    **dict.fromkeys(("kl_estimator", "kl_loss_type"), "algorithm.kl"),
    **dict.fromkeys(("kl_ctrl", "kl_ctrl_type", "adap_kl_ctrl"), "algorithm.kl_controller"),
    **dict.fromkeys(
        (
            "tis_cap",
            "vllm_importance_sampling_cap",
            "vllm_importance_sampling_clip_max",
            "rollout_is_threshold",
            "rollout_importance_sampling_threshold",
        ),
        "algorithm.importance_cap",
    ),
    **dict.fromkeys(
        ("lr", "actor_lr", "actor_learning_rate", "optim_lr", "step_size", "rl_lr", "grpo_lr"),
        "optimizer.learning_rate",
    ),
    **dict.fromkeys(("lambda_sup", "lambda_sft", "supervised_weight"), "algorithm.lambda_supervised"),
    **dict.fromkeys(("global_reward_mean", "global_reward_std"), 'algorithm.advantage = "running"'),
    **dict.fromkeys(("advantage_whiten", "whiten_advantages", "whiten_rewards"), 'algorithm.advantage = "whitened"'),
    "use_rank_advantage": 'algorithm.advantage = "rank"',
    "require_positive_query": 'task.queries = "positive"',
    **dict.fromkeys(
        ("max_grad_norm", "max_norm", "clip_norm", "grad_norm", "clip_grad", "gradient_clip", "gradient_clipping"),
        "optimizer.grad_clip",
    ),
    **dict.fromkeys(("adam_beta1", "adam_beta2", "beta1", "beta2"), "optimizer.betas"),
    **dict.fromkeys(("adam_epsilon", "adam_eps"), "optimizer.eps"),
    "wd": "optimizer.weight_decay",
    **dict.fromkeys(("optim_eps", "override_optimizer_config_eps"), "optimizer.eps"),
    **dict.fromkeys(("router_aux_loss_coef", "aux_loss_coef", "router_aux_loss"), "policy.router_loss"),
    "wandb_project": "training.project",
    **dict.fromkeys(
        ("max_steps", "total_steps", "total_training_steps", "num_train_steps", "iterations", "max_iters"),
        "training.steps",
    ),
    **dict.fromkeys(
        (
            "per_device_train_batch_size",
            "micro_batch_size",
            "micro_train_batch_size",
            "ppo_micro_batch_size",
            "ppo_micro_batch_size_per_gpu",
            "train_micro_batch_size",
        ),
        "training.rows_per_block",
    ),
    **dict.fromkeys(("save_steps", "save_freq", "save_every"), "training.checkpoint_every"),
    **dict.fromkeys(
        ("save_total_limit", "max_checkpoints", "max_ckpt_num", "max_actor_ckpt_to_keep"), "training.keep_checkpoints"
    ),
    **dict.fromkeys(
        ("report_to", "logger", "loggers", "wandb", "tensorboard", "trackio", "use_wandb", "use_tensorboard"),
        "training.sinks",
    ),
    **dict.fromkeys(("resume", "resume_from", "resume_from_checkpoint"), "anygrpo train --resume FOLDER"),
    **dict.fromkeys(
        ("gpus", "num_gpus", "n_gpus", "n_gpus_per_node"), "torchrun --nproc-per-node 2 -m anygrpo train ..."
    ),
    "bf16": 'policy.dtype = "bfloat16"',
    "fp16": 'policy.dtype = "float16"',
    "cast_lm_head_to_fp32": 'policy.head = "float32"',
    **dict.fromkeys(("lora_rank", "lora_r", "r"), "policy.lora.rank"),
    **dict.fromkeys(("lora_target_modules", "target_modules"), "policy.lora.targets"),
    **dict.fromkeys(("pretrain", "base_model", "ckpt", "actor_model"), "policy.model"),
    **dict.fromkeys(("reward_alpha_psnr", "psnr_weight"), "task.w_psnr"),
    "ssim_weight": "task.w_ssim",
    "multi_objective_aggregation": 'algorithm.advantage = "gdpo"',
    **dict.fromkeys(("sapo_temperature_pos", "tau_pos"), "algorithm.tau_positive"),
    **dict.fromkeys(("sapo_temperature_neg", "tau_neg"), "algorithm.tau_negative"),
    **dict.fromkeys(("vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_url"), "policy.engine_url"),
    **dict.fromkeys(
        ("vllm_importance_sampling_correction", "vllm_importance_sampling_mode", "rollout_is", "rollout_rs"),
        "algorithm.importance",
    ),
    "lora_alpha": "policy.lora.alpha",
    **dict.fromkeys(
        (
            "eval_strategy",
            "evaluation_strategy",
            "eval_steps",
            "eval_every",
            "eval_freq",
            "eval_interval",
            "test_freq",
            "val_interval",
        ),
        "evaluation.every",
    ),
    **dict.fromkeys(("val_before_train", "eval_on_start"), "evaluation.at_start"),
    **dict.fromkeys(("prompt_key", "input_key", "prompt_column_name"), "task.prompt_column"),
    **dict.fromkeys(("label_key", "answer_key", "reward_fn_key"), "task.answer_column"),
    "apply_chat_template_kwargs": "policy.chat_template_kwargs",
    "loss_scale_factor": "algorithm.horizon",
    **dict.fromkeys(
        ("enable_gradient_checkpointing", "gradient_checkpointing_enable"), "policy.gradient_checkpointing"
    ),
    **dict.fromkeys(("nnodes", "num_processes", "num_nodes"), "torchrun --nnodes 2 -m anygrpo train ..."),
    "filter_groups": "algorithm.refill",
    **dict.fromkeys(
        ("dynamic_sample", "dynamic_sampling", "dynamic_filtering", "filter_groups_enable"), "algorithm.refill"
    ),
    **dict.fromkeys(("overlong_buffer_cfg_enable", "overlong_buffer_cfg_penalty_factor"), "algorithm.overlong_buffer"),
    "use_kl_estimator_k3": 'algorithm.kl = "k3"',
    **dict.fromkeys(
        ("quantization", "quant_method", "bnb_4bit_quant_type", "load_in_4bit", "load_in_8bit", "quant_bits"),
        "policy.quantize",
    ),
    "stop_words": "policy.stop",
    **dict.fromkeys(("apply_chat_template", "chat_template"), "policy.chat_template"),
    **dict.fromkeys(
        ("reward_model_path", "reward_model_enable", "reward_model"), '[[task.rewards]] kind = "reward_model"'
    ),
    **dict.fromkeys(
        (
            "max_len",
            "max_completion_length",
            "max_response_length",
            "max_tokens",
            "generate_max_len",
            "response_length",
            "max_output_length",
        ),
        "policy.max_new_tokens",
    ),
    **dict.fromkeys(
        ("output_dir", "logging_dir", "run_dir", "save_path", "save_dir", "ckpt_path", "default_local_dir"), "folder"
    ),
    **dict.fromkeys(("run_name", "experiment_name", "exp_name"), "name"),
    "metric_for_best_model": "evaluation.metric",
    **dict.fromkeys(("early_stopping_patience", "early_stopping", "early_stop"), "evaluation.patience"),
    **dict.fromkeys(("eval_size", "val_size", "test_size", "eval_samples", "max_eval_samples"), "task.held_out"),
    **dict.fromkeys(
        (
            "reward_funcs",
            "reward_functions",
            "reward_fn",
            "reward_func",
            "reward_function",
            "remote_rm_url",
            "external_plugins",
            "reward_pretrain",
            "custom_reward_function",
            "length_reward",
            "coherence_reward",
        ),
        "[[task.rewards]]",
    ),
    **dict.fromkeys(
        (
            "dataset",
            "dataset_name",
            "train_files",
            "train_file",
            "train_data",
            "prompt_data",
            "data_path",
            "data_dir",
            "dataset_path",
        ),
        "task.path",
    ),
    **dict.fromkeys(("use_vllm", "vllm_mode", "vllm_num_engines", "rollout_name"), 'policy.engine = "vllm"'),
    **dict.fromkeys(("num_inference_steps", "sample_num_steps", "diffusion_steps", "denoising_steps"), "policy.steps"),
    **dict.fromkeys(("guidance_scale", "sample_guidance_scale", "guidance_param", "cfg_scale"), "policy.guidance"),
    **dict.fromkeys(
        ("mask_truncated_completions", "overlong_filtering", "overlong_filter"),
        'algorithm.filters = [{kind="overlong_mask"}]',
    ),
}
"""A word of TRL, verl, OpenRLHF, diffusers ... -> the key, or the line of a recipe or a shell, that means the same."""
