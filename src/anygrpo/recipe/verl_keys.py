"""verl's keys: their defaults (ppo_trainer.yaml), and which of them have no say here."""

from __future__ import annotations

from typing import Any

from anygrpo.spoken import Text

A, R, M = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout.", "actor_rollout_ref.model."
O = A + "optim."  # noqa: E741
OVERRIDE = O + "override_optimizer_config"
KWARGS = "data.apply_chat_template_kwargs"
OVERLONG = "reward_model.reward_kwargs.overlong_buffer_cfg."

DEFAULTS: dict[str, Any] = {
    "algorithm.adv_estimator": "gae", "algorithm.norm_adv_by_std_in_grpo": True, "algorithm.use_kl_in_reward": False,
    "algorithm.kl_ctrl.kl_coef": 0.001, "algorithm.kl_ctrl.type": "fixed", "algorithm.kl_penalty": "kl",
    "data.train_batch_size": 1024, "data.max_response_length": 512, "data.prompt_key": "prompt",
    "data.train_files": "~/data/rlhf/gsm8k/train.parquet", "data.val_files": "~/data/rlhf/gsm8k/test.parquet",
    "data.shuffle": True, "data.truncation": "error", R + "n": 1, R + "temperature": 1.0, R + "top_k": -1,
    R + "top_p": 1.0, R + "name": "vllm", R + "gpu_memory_utilization": 0.5, R + "do_sample": True,
    A + "ppo_mini_batch_size": 256, A + "ppo_epochs": 1, A + "clip_ratio": 0.2, A + "clip_ratio_low": None,
    A + "clip_ratio_high": None, A + "clip_ratio_c": 3.0, A + "loss_agg_mode": "token-mean", A + "entropy_coeff": 0.0,
    A + "use_kl_loss": False, A + "kl_loss_coef": 0.001, A + "kl_loss_type": "low_var_kl", A + "tau_pos": 1.0,
    A + "tau_neg": 1.05, A + "policy_loss.loss_mode": "vanilla", A + "loss_scale_factor": None, A + "grad_clip": 1.0,
    O + "lr": 1e-6, O + "weight_decay": 0.01, O + "lr_warmup_steps": -1, O + "lr_warmup_steps_ratio": 0.0,
    O + "betas": [0.9, 0.999], O + "min_lr_ratio": 0.0, O + "lr_scheduler_type": "constant", O + "warmup_style": None,
    O + "optimizer": "AdamW", M + "path": None, M + "lora_rank": 0, M + "lora_alpha": 16,
    M + "target_modules": "all-linear", M + "enable_gradient_checkpointing": True, R + "dtype": "bfloat16",
    "trainer.total_epochs": 30, "trainer.total_training_steps": None, "trainer.save_freq": -1, "trainer.test_freq": -1,
    "trainer.val_before_train": True, "trainer.project_name": "verl_examples", "trainer.experiment_name": "gsm8k",
    "trainer.logger": ["console", "wandb"], "trainer.n_gpus_per_node": 8, "trainer.nnodes": 1,
    "algorithm.filter_groups.enable": False, "reward_model.enable": False, "critic.enable": None,
    OVERLONG + "enable": False, OVERLONG + "penalty_factor": 1.0, "trainer.critic_warmup": 0,
    R + "multi_turn.enable": False, "algorithm.rollout_correction.rollout_is": None,
    "algorithm.rollout_correction.rollout_is_threshold": 2.0, "algorithm.rollout_correction.rollout_rs": None,
    "data.apply_chat_template_kwargs": {}, "custom_reward_function.name": "compute_score", "algorithm.gamma": 1.0,
    "algorithm.lam": 1.0,
}  # fmt: skip

MACHINE = (
    A + "ppo_micro_batch_size", A + "ppo_micro_batch_size_per_gpu", A + "use_dynamic_bsz", A + "strategy",
    A + "ppo_max_token_len_per_gpu", A + "ulysses_sequence_parallel_size", A + "fsdp_config.", A + "megatron.",
    A + "entropy_checkpointing", A + "entropy_from_logits_with_chunking", A + "use_torch_compile", A + "checkpoint.",
    A + "profiler.", A + "use_fused_kernels", A + "calculate_entropy", A + "use_prefix_grouper", A + "rollout_n",
    "actor_rollout_ref.ref.", *(f"{OVERRIDE}.{key}" for key in (
        "fused", "foreach", "capturable", "optimizer_cpu_offload", "optimizer_offload_fraction", "offload_fraction",
        "overlap_cpu_optimizer_d2h_h2d",
    )),
    "actor_rollout_ref.nccl_timeout", M + "use_remove_padding", M + "use_shm", M + "use_fused_kernels", M + "use_liger",
    M + "enable_activation_offload", M + "fused_kernel_options.", M + "tiled_mlp.", "actor_rollout_ref.hybrid_engine",
    R + "tensor_model_parallel_size", R + "log_prob_micro_batch_size_per_gpu", R + "log_prob_micro_batch_size",
    R + "log_prob_use_dynamic_bsz", R + "log_prob_max_token_len_per_gpu", R + "enable_chunked_prefill", R + "mode",
    R + "max_num_batched_tokens", R + "max_num_seqs", R + "max_model_len", R + "enforce_eager", R + "load_format",
    R + "free_cache_engine", R + "layered_summon", R + "engine_kwargs.", R + "data_parallel_size", R + "agent.",
    R + "expert_parallel_size", R + "pipeline_model_parallel_size", R + "disable_log_stats", R + "multi_stage_wake_up",
    R + "update_weights_bucket_megabytes", R + "enable_prefix_caching", R + "cudagraph_capture_sizes",
    R + "prompt_length", R + "response_length", R + "calculate_log_probs", R + "checkpoint_engine.", R + "quantization",
    "critic.", "trainer.balance_batch", "trainer.use_legacy_worker_impl", "trainer.ray_wait_register_center_timeout",
    "trainer.device", "ray_kwargs.", "ray_init.", "data.dataloader_num_workers", "global_profiler.", "trainer.profile_",
    "transfer_queue.", "data.filter_overlong_prompts_workers", "hydra.", "reward_model.launch_reward_fn_async",
)  # fmt: skip
SAID = (
    "data.max_prompt_length", "data.filter_overlong_prompts", "data.truncation", "data.return_raw_chat",
    "data.return_raw_input_ids", "data.return_full_prompt", "data.val_batch_size", "data.reward_fn_key",
    "trainer.resume_mode", "trainer.log_val_generations", "trainer.rollout_data_dir", "trainer.validation_data_dir",
    "trainer.max_actor_ckpt_to_keep", "trainer.max_critic_ckpt_to_keep", "trainer.default_hdfs_dir",
    "trainer.project_name", "trainer.del_local_ckpt_after_load", OVERLONG + "log", "trainer.val_only",
    "reward_model.reward_kwargs.max_resp_len", "reward_model.reward_manager", "data.seed", "data.trust_remote_code",
)  # fmt: skip
ABSENT = {
    "data.image_key": Text(
        "task.pictures of a data task, with [policy.vision]", "数据任务的 task.pictures，并加 [policy.vision]"
    ),
    "data.video_key": Text("prompts hold texts and pictures, no films", "提示含文字与图片，不含视频"),
    A + "freeze_vision_tower": Text(
        '[policy.vision] train = "language", the default', '[policy.vision] train = "language"，即默认值'
    ),
    M + "lora_adapter_path": Text(
        "policy.model may be the adapter's folder: it is merged into its base",
        "policy.model 可以是适配器的文件夹：它会并入基座模型",
    ),
    M + "exclude_modules": Text("policy.lora.targets names what is adapted", "policy.lora.targets 写明哪些层带适配器"),
    "data.gen_batch_size": Text(
        "a draw is of prompts_per_step prompts; refill draws again", "每次取 prompts_per_step 个提示；refill 会再取"
    ),
    "data.custom_cls.path": Text("a task of your own: docs/policies.md", "自己的任务：docs/policies.md"),
    "data.custom_cls.name": Text("a task of your own: docs/policies.md", "自己的任务：docs/policies.md"),
    "data.sampler.class_path": Text("prompts are drawn by (seed, step)", "提示由（种子，步）决定"),
    "data.sampler.class_name": Text("prompts are drawn by (seed, step)", "提示由（种子，步）决定"),
    "algorithm.use_pf_ppo": Text("samples are not drawn again by their reward", "不按奖励重新抽取样本"),
    M + "trust_remote_code": Text("code from a model's repository is not run", "不运行模型仓库里的代码"),
    A + "router_replay.mode": Text("the router's choices are computed anew", "路由的选择会重新计算"),
    "trainer.resume_from_path": Text(
        "give policy.model, or --resume of a run of ours", "请给 policy.model，或对这里的运行用 --resume"
    ),
}
ESTIMATORS = {
    "grpo": "zscore", "rloo": "leave_one_out", "rloo_vectorized": "leave_one_out", "reinforce_plus_plus": "overall",
    "reinforce_plus_plus_baseline": "whitened", "grpo_passk": "best_gap", "gpg": "gpg", "gdpo": "gdpo",
    "grpo_vectorized": "zscore",
}  # fmt: skip
