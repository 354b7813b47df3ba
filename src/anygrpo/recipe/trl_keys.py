"""TRL's keys: their defaults (TRL 1.16, transformers' TrainingArguments), and which have no say here."""

from __future__ import annotations

from typing import Any

from anygrpo.spoken import Text

DEFAULTS: dict[str, Any] = {
    "learning_rate": 1e-6, "lr_scheduler_type": "linear", "warmup_steps": 0, "warmup_ratio": 0.0, "weight_decay": 0.0,
    "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8, "max_grad_norm": 1.0, "num_train_epochs": 3.0,
    "max_steps": -1, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "num_generations": 8,
    "max_completion_length": 512, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": None, "beta": 0.0,
    "num_iterations": 1, "epsilon": 0.2, "delta": None, "epsilon_high": None, "importance_sampling_level": "token",
    "scale_rewards": "group", "loss_type": "dapo", "multi_objective_aggregation": "sum_then_normalize",
    "mask_truncated_completions": False, "sapo_temperature_neg": 1.05, "sapo_temperature_pos": 1.0, "use_vllm": False,
    "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3, "vllm_server_host": "0.0.0.0",
    "vllm_server_port": 8000, "vllm_importance_sampling_correction": True, "bf16": True, "fp16": False,
    "vllm_importance_sampling_mode": "sequence_mask", "vllm_importance_sampling_clip_max": 3.0,
    "gradient_checkpointing": True, "lora_r": 16, "lora_alpha": 32, "save_steps": 500, "entropy_coef": 0.0,
    "top_entropy_quantile": 1.0, "repetition_penalty": 1.0, "eval_strategy": "no", "use_bias_correction_kl": True,
    "sync_ref_model": False, "use_adaptive_entropy": False,
    "router_aux_loss_coef": None, "shuffle_dataset": True, "disable_dropout": False,
    "lora_dropout": 0.05, "optim": "adamw_torch_fused", "use_dora": False, "use_rslora": False,
    "cast_lm_head_to_fp32": False, "trust_remote_code": False, "report_to": None, "eval_steps": None,
}  # fmt: skip

MACHINE = (
    "per_device_eval_batch_size", "deepspeed", "fsdp", "fsdp_config", "ddp_find_unused_parameters", "torch_compile",
    "gradient_checkpointing_kwargs", "dataloader_num_workers", "dataloader_pin_memory", "use_liger_kernel", "tf32",
    "ds3_gather_for_generation", "pad_to_multiple_of", "torch_empty_cache_steps", "vllm_tensor_parallel_size",
    "vllm_enable_sleep_mode", "vllm_max_model_length", "vllm_model_impl", "vllm_group_port", "attn_implementation",
    "local_rank", "config_file", "num_processes", "num_machines", "mixed_precision", "use_transformers_paged",
    "use_transformers_continuous_batching", "cache_implementation", "dataset_num_proc", "remove_unused_columns",
    "main_process_port", "model_init_kwargs", "dtype", "torch_dtype", "vllm_server_timeout",
)  # fmt: skip
SAID = (
    "logging_steps", "logging_strategy", "logging_first_step", "log_completions", "num_completions_to_print",
    "log_unique_prompts", "push_to_hub", "hub_model_id", "overwrite_output_dir", "save_total_limit", "save_strategy",
    "trackio_space_id", "wandb_project", "do_eval", "do_train", "log_multimodal", "save_only_model", "hub_strategy",
    "disable_tqdm", "run_post_training_eval", "hub_private_repo", "log_level", "resume_from_checkpoint",
    "save_safetensors",
)  # fmt: skip
ABSENT = {
    "top_entropy_quantile": Text(
        "the loss is over all decisions here, not over those of high entropy alone",
        "这里的损失取全部决策，不只取高熵的",
    ),
    "repetition_penalty": Text(
        "sampling that depends on what was sampled would have to be scored so too",
        "依赖已采样内容的采样，打分时也须如此",
    ),
    "generation_kwargs": Text(
        "only temperature, top_k, top_p and min_p are sampled and scored alike",
        "采样与打分一致的只有 temperature、top_k、top_p、min_p",
    ),
    "sync_ref_model": Text(
        "the reference stays; a new stage takes the policy as it then is", "参考策略不变；新阶段以当时的策略为参考"
    ),
    "use_adaptive_entropy": Text(
        'the weight of the entropy follows a schedule here, no controller; see temperature = { kind = "adaptive" }',
        '熵的权重按调度变化，没有控制器；参见 temperature = { kind = "adaptive" }',
    ),
    "off_policy_mask_threshold": Text(
        "no mask of whole samples by their ratio; see importance", "不按比率屏蔽整个样本；参见 importance"
    ),
    "vllm_importance_sampling_clip_min": Text("importance has a cap and no floor", "importance 有上限，没有下限"),
    "vllm_structured_outputs_regex": Text("no constrained decoding", "没有受约束的解码"),
    "use_dora": Text("adapters are plain LoRA", "适配器是普通的 LoRA"),
    "use_rslora": Text(
        "adapters are scaled by alpha / rank: set alpha = alpha x sqrt(rank) yourself",
        "适配器按 alpha / rank 缩放：请自行设 alpha = alpha x sqrt(rank)",
    ),
    "lora_modules_to_save": Text("only adapters are trained, or all weights", "要么只训练适配器，要么训练全部权重"),
    "lora_dropout": Text(
        "adapters have no dropout: it would have to be off while scoring and on while training",
        "适配器没有 dropout：它须在打分时关、训练时开",
    ),
    "tools": Text(
        "tools are functions of files of yours: policy.tools (docs/turns.md)",
        "工具是你文件里的函数：policy.tools（docs/turns.md）",
    ),
    "environment_factory": Text(
        "an environment is a class or a function: policy.environment (docs/turns.md)",
        "环境是一个类或函数：policy.environment（docs/turns.md）",
    ),
    "rollout_func": Text(
        "sampling is the policy's own (a policy of yours: docs/policies.md)",
        "采样由策略自己做（自己的策略：docs/policies.md）",
    ),
    "callbacks": Text("observers are given in Python (anygrpo.train)", "观察者在 Python 里给出（anygrpo.train）"),
    "max_tool_calling_iterations": Text("see policy.max_turns", "参见 policy.max_turns"),
    "trust_remote_code": Text("code from a model's repository is not run", "不运行模型仓库里的代码"),
    "shuffle_dataset": Text("every pass over the data is a permutation of its own", "每遍数据各有自己的随机排列"),
    "reward_processing_classes": Text("a reward model brings its own tokenizer", "奖励模型自带分词器"),
    "ref_model_mixup_alpha": Text("the reference stays as it was at the stage's start", "参考策略在阶段内不变"),
    "ref_model_sync_steps": Text("the reference stays as it was at the stage's start", "参考策略在阶段内不变"),
    "max_prompt_length": Text(
        "prompts are never cut: what does not fit is refused before the first step",
        "提示从不截断：放不下的在第一步之前就被拒绝",
    ),
}
