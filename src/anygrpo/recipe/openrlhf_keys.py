"""OpenRLHF's keys: their defaults (0.11, train_ppo_ray), older names, and which of them have no say here."""

from __future__ import annotations

from typing import Any

from anygrpo.spoken import Text

DEFAULTS: dict[str, Any] = {
    "actor.model_name_or_path": None, "actor.adam.lr": 1e-6, "actor.adam.betas": [0.9, 0.95], "actor.adam.eps": 1e-8,
    "actor.adam.weight_decay": 0.0, "actor.optim": "adam", "actor.max_norm": 1.0, "actor.lr_warmup_ratio": 0.03,
    "actor.lr_scheduler": "cosine_with_min_lr", "actor.min_lr_ratio": 0.1, "actor.eps_clip": 0.2,
    "actor.eps_clip_low_high": None, "actor.dual_clip": None, "actor.policy_loss_type": "ppo",
    "actor.entropy_coef": None, "actor.aux_loss_coef": 0, "actor.gradient_checkpointing_enable": False,
    "algo.advantage.estimator": "gae", "algo.advantage.no_std_norm": False, "algo.advantage.gamma": 1,
    "algo.advantage.lambd": 1, "algo.advantage.is_correction_enable": False,
    "algo.advantage.is_correction_threshold": [0.5, 5.0], "algo.advantage.is_correction_type": "tis",
    "algo.kl.init_coef": 0.01, "algo.kl.use_loss": False, "algo.kl.estimator": "k1", "algo.kl.target": None,
    "algo.kl.horizon": 10_000, "algo.dynamic_filtering_enable": False, "algo.dynamic_filtering_range": [0, 1],
    "data.prompt_dataset": None, "data.prompt_split": "train", "data.input_key": "input", "data.label_key": None,
    "data.input_template": None, "data.apply_chat_template": False, "data.max_len": 2048, "data.max_samples": 10**8,
    "data.prompt_probs": None, "ds.param_dtype": "bf16", "ds.load_in_4bit": False, "ds.lora.rank": 0,
    "ds.lora.alpha": 16, "ds.lora.target_modules": "all-linear", "ds.lora.dropout": 0, "eval.dataset": None,
    "eval.split": "train", "eval.steps": -1, "eval.temperature": 0.6, "eval.n_samples_per_prompt": 4,
    "ckpt.save_steps": -1, "ckpt.output_dir": "./ckpt", "logger.wandb.key": None, "logger.tensorboard_dir": None,
    "logger.wandb.project": "openrlhf_train_ppo", "logger.wandb.run_name": None, "reward.model_name_or_path": None,
    "reward.remote_url": None, "reward.normalize_enable": False, "reward.clip_range": [-10, 10],
    "reward.overlong_buffer_len": None, "reward.overlong_penalty_factor": 1, "reward.stop_properly_penalty_coef": None,
    "rollout.batch_size": 1024, "rollout.n_samples_per_prompt": 1, "rollout.max_new_tokens": None,
    "rollout.temperature": 1.0, "rollout.top_p": 1.0, "train.batch_size": 128, "train.max_epochs": 1,
    "train.num_episodes": 1, "train.seed": 42, "train.async_enable": False, "train.async_queue_size": 1,
    "train.agent_func_path": None, "train.enable_ema": False, "train.partial_rollout_enable": False,
    "data.image_key": "images", "data.max_images_per_prompt": 0, "actor.freeze_visual_encoder": False,
    "critic.freezing_steps": -1, "vllm.num_engines": None, "vllm.gpu_memory_utilization": 0.95,
}  # fmt: skip
OLDER = {
    "pretrain": "actor.model_name_or_path", "actor_learning_rate": "actor.adam.lr", "adam_betas": "actor.adam.betas",
    "l2": "actor.adam.weight_decay", "max_norm": "actor.max_norm", "lr_warmup_ratio": "actor.lr_warmup_ratio",
    "lr_scheduler": "actor.lr_scheduler", "eps_clip": "actor.eps_clip", "dual_clip": "actor.dual_clip",
    "eps_clip_low_high": "actor.eps_clip_low_high", "policy_loss_type": "actor.policy_loss_type",
    "entropy_loss_coef": "actor.entropy_coef", "aux_loss_coef": "actor.aux_loss_coef", "top_p": "rollout.top_p",
    "gradient_checkpointing": "actor.gradient_checkpointing_enable", "advantage_estimator": "algo.advantage.estimator",
    "no_advantage_std_norm": "algo.advantage.no_std_norm", "gamma": "algo.advantage.gamma",
    "lambd": "algo.advantage.lambd", "enable_vllm_is_correction": "algo.advantage.is_correction_enable",
    "vllm_is_correction_type": "algo.advantage.is_correction_type", "init_kl_coef": "algo.kl.init_coef",
    "vllm_is_truncated_threshold": "algo.advantage.is_correction_threshold", "use_kl_loss": "algo.kl.use_loss",
    "kl_estimator": "algo.kl.estimator", "kl_target": "algo.kl.target", "kl_horizon": "algo.kl.horizon",
    "dynamic_filtering": "algo.dynamic_filtering_enable", "dynamic_filtering_reward_range":
    "algo.dynamic_filtering_range", "prompt_data": "data.prompt_dataset", "prompt_split": "data.prompt_split",
    "input_key": "data.input_key", "label_key": "data.label_key", "input_template": "data.input_template",
    "apply_chat_template": "data.apply_chat_template", "max_len": "data.max_len", "max_samples": "data.max_samples",
    "prompt_data_probs": "data.prompt_probs", "load_in_4bit": "ds.load_in_4bit", "lora_rank": "ds.lora.rank",
    "lora_alpha": "ds.lora.alpha", "target_modules": "ds.lora.target_modules", "lora_dropout": "ds.lora.dropout",
    "eval_dataset": "eval.dataset", "eval_split": "eval.split", "eval_steps": "eval.steps",
    "eval_temperature": "eval.temperature", "eval_n_samples_per_prompt": "eval.n_samples_per_prompt",
    "save_steps": "ckpt.save_steps", "save_path": "ckpt.output_dir", "ckpt_path": "ckpt.path",
    "use_wandb": "logger.wandb.key", "use_tensorboard": "logger.tensorboard_dir", "temperature": "rollout.temperature",
    "wandb_project": "logger.wandb.project", "wandb_run_name": "logger.wandb.run_name",
    "reward_pretrain": "reward.model_name_or_path", "remote_rm_url": "reward.remote_url",
    "normalize_reward": "reward.normalize_enable", "reward_clip_range": "reward.clip_range",
    "overlong_buffer_len": "reward.overlong_buffer_len", "overlong_penalty_factor": "reward.overlong_penalty_factor",
    "stop_properly_penalty_coef": "reward.stop_properly_penalty_coef", "rollout_batch_size": "rollout.batch_size",
    "n_samples_per_prompt": "rollout.n_samples_per_prompt", "generate_max_len": "rollout.max_new_tokens",
    "train_batch_size": "train.batch_size", "max_epochs": "train.max_epochs", "num_episodes": "train.num_episodes",
    "seed": "train.seed", "async_train": "train.async_enable", "async_queue_size": "train.async_queue_size",
    "agent_func_path": "train.agent_func_path", "enable_ema": "train.enable_ema", "vllm_num_engines":
    "vllm.num_engines", "vllm_gpu_memory_utilization": "vllm.gpu_memory_utilization", "partial_rollout":
    "train.partial_rollout_enable", "critic_pretrain": "critic.model_name_or_path",
    "param_dtype": "ds.param_dtype", "vllm_enable_is_correction": "algo.advantage.is_correction_enable",
    "reward_model_path": "reward.model_name_or_path", "max_new_tokens": "rollout.max_new_tokens",
    "ema_beta": "train.ema_beta", "best_metric_key": "ckpt.best_metric_key",
    "freezing_actor_steps": "critic.freezing_steps",
}  # fmt: skip
"""Names of the versions before 0.10, which had no tables."""

MACHINE = (
    "ref.", "ds.", "vllm.", "actor.num_nodes", "actor.num_gpus_per_node", "reward.num_nodes",
    "reward.num_gpus_per_node", "reward.offload", "train.colocate_all", "train.colocate_actor_ref",
    "train.colocate_critic_reward", "train.micro_batch_size", "train.dynamic_batch_enable", "train.max_tokens_per_gpu",
    "rollout.micro_batch_size", "rollout.max_tokens_per_gpu", "rollout.vllm_generate_batch_size", "local_rank",
    "actor.gradient_checkpointing_reentrant", "data.disable_fast_tokenizer", "data.dataloader_num_workers", "use_ms",
    "ref_num_nodes", "ref_num_gpus_per_node", "reward_num_nodes", "reward_num_gpus_per_node", "actor_num_nodes",
    "actor_num_gpus_per_node", "colocate_actor_ref", "flash_attn",
    "colocate_critic_reward", "colocate_all_models", "vllm_tensor_parallel_size", "vllm_sync_backend", "zero_stage",
    "enforce_eager", "enable_prefix_caching", "vllm_enable_sleep", "deepspeed_enable_sleep", "adam_offload",
    "packing_samples", "ring_attn_size", "ring_head_stride", "micro_train_batch_size", "micro_rollout_batch_size",
    "use_dynamic_batch", "train_max_tokens_per_gpu", "rollout_max_tokens_per_gpu", "attn_implementation", "zpg",
    "use_liger_kernel", "grad_accum_dtype", "overlap_comm", "gradient_checkpointing_use_reentrant", "deepcompile",
    "ref_reward_offload", "vllm_generate_batch_size", "actor_init_on_gpu", "vllm_sync_with_ray",
    "disable_fast_tokenizer", "ds_tensor_parallel_size", "value_head_prefix", "bf16",
    "runtime-env-json", "runtime_env_json", "address", "working_dir",
    "rollout_tasks_per_gpu", "inference_tp_size", "full_determinism", "perf", "train.full_determinism_enable",
)  # fmt: skip
CRITIC = (
    "critic.", "critic_learning_rate", "value_clip", "save_value_network", "critic_num_nodes",
    "critic_num_gpus_per_node",
)  # fmt: skip
SAID = (
    "ckpt.path", "ckpt.save_hf", "ckpt.disable_ds", "ckpt.max_num", "ckpt.max_mem", "ckpt.load_enable",
    "ckpt.best_metric_key", "logger.", "save_hf_ckpt", "disable_ds_ckpt", "max_ckpt_num", "max_ckpt_mem",
    "load_checkpoint", "logging_steps", "use_ds_universal_ckpt", "wandb_group", "wandb_org",
)  # fmt: skip
ABSENT = {
    "critic.freezing_steps": Text(
        "the policy learns from the first step: there is no critic to wait for",
        "策略从第一步起就学习：没有要等的评论家网络",
    ),
    "prompt_max_len": Text("prompts are never cut or left out", "提示不截断，也不丢弃"),
    "algo.advantage.gamma": Text("samples have no discount", "样本没有折扣"),
    "algo.advantage.lambd": Text("there is no critic", "没有评论家网络"),
    "data.input_template": Text(
        "a prompt is put into the chat template, or left as it is: write it into the rows",
        "提示放进聊天模板，或保持原样：请写进数据行",
    ),
    "data.max_samples": Text("all rows are used: shorten the file, or the split", "使用全部行：请缩短文件或 split"),
    "data.prompt_probs": Text('task kind = "mixture" has shares', 'task kind = "mixture" 有份额'),
    "ds.lora.dropout": Text(
        "adapters have no dropout: it would have to be off while scoring and on while training",
        "适配器没有 dropout：它须在打分时关、训练时开",
    ),
    "eval.temperature": Text("held-out answers are greedy", "留出集的回答取最可能的"),
    "reward.normalize_enable": Text(
        "advantages are normalised, rewards stay as they are", "归一化的是优势，奖励保持原样"
    ),
    "reward.clip_range": Text("rewards are not clipped: clip in the function", "奖励不截断：请在函数里截断"),
    "reward.stop_properly_penalty_coef": Text(
        'cut answers may leave the loss: filters = [{ kind = "overlong_mask" }]',
        '被截断的回答可退出损失：filters = [{ kind = "overlong_mask" }]',
    ),
    "train.enable_ema": Text("no moving average of the weights is kept", "不保存权重的滑动平均"),
    "train.ema_beta": Text("no moving average of the weights is kept", "不保存权重的滑动平均"),
    "ptx_coef": Text(
        "there is no pretraining loss; demonstrations have algorithm.lambda_supervised",
        "没有预训练损失；示范数据用 algorithm.lambda_supervised",
    ),
    "train.partial_rollout_enable": Text(
        "an answer is sampled by one version of the weights", "一个回答由同一版权重采样"
    ),
    "train.agent_func_path": Text(
        "an environment is a class or a function: policy.environment (docs/turns.md)",
        "环境是一个类或函数：policy.environment（docs/turns.md）",
    ),
}
ESTIMATORS = {
    "group_norm": "zscore", "rloo": "leave_one_out", "reinforce_baseline": "whitened", "dr_grpo": "centred",
    "reinforce": "overall",
}  # fmt: skip
