"""What each framework calls each setting, and how it writes values: tables, and names read by them."""

from __future__ import annotations

from typing import Any

from anygrpo.doctor.synonyms import WORDS_SETTING

SETTINGS: dict[str, dict[str, str]] = {
    "scoring_dropout": {"anygrpo": "policy.dropout_in_scoring"},
    "behaviour": {"anygrpo": "policy.behaviour"},
    "learning_rate": {
        "anygrpo": "optimizer.learning_rate", "trl": "learning_rate", "verl": "actor_rollout_ref.actor.optim.lr",
        "openrlhf": "--actor.adam.lr", "nemo-rl": "policy.optimizer.kwargs.lr", "ms-swift": "--learning_rate",
        "prime-rl": "trainer.optim.lr", "tinker": "learning_rate", "skyrl": "trainer.policy.optimizer_config.lr",
        "areal": "actor.optimizer.lr", "slime": "--lr", "open-instruct": "--learning_rate",
        "roll": "actor_train.training_args.learning_rate",
    },
    "beta": {
        "anygrpo": "algorithm.beta", "trl": "beta", "verl": "actor_rollout_ref.actor.kl_loss_coef",
        "openrlhf": "--algo.kl.init_coef",
        "nemo-rl": "loss_fn.reference_policy_kl_penalty", "ms-swift": "--beta", "prime-rl": "trainer.loss.kl_tau",
        "tinker": "kl_penalty_coef", "skyrl": "trainer.algorithm.kl_loss_coef", "areal": "actor.kl_ctl",
        "slime": "--kl-loss-coef",
        "open-instruct": "--beta", "roll": "kl_loss_coef",
    },
    "max_staleness": {"anygrpo": "training.max_staleness", "areal": "rollout.max_head_offpolicyness"},
    "group_size": {
        "anygrpo": "algorithm.group_size", "trl": "num_generations", "verl": "actor_rollout_ref.rollout.n",
        "openrlhf": "--rollout.n_samples_per_prompt", "nemo-rl": "grpo.num_generations_per_prompt",
        "ms-swift": "--num_generations",
        "prime-rl": "orchestrator.rollouts_per_example", "tinker": "group_size",
        "skyrl": "generator.n_samples_per_prompt",
        "areal": "gconfig.n_samples", "slime": "--n-samples-per-prompt",
        "open-instruct": "--num_samples_per_prompt_rollout",
        "roll": "actor_infer.generating_args.num_return_sequences",
    },
    "max_length": {
        "anygrpo": "policy.max_new_tokens", "trl": "max_completion_length", "verl": "data.max_response_length",
        "openrlhf": "--rollout.max_new_tokens", "nemo-rl": "policy.generation.max_new_tokens",
        "ms-swift": "--max_completion_length",
        "prime-rl": "orchestrator.sampling.max_tokens", "tinker": "max_tokens",
        "skyrl": "generator.sampling_params.max_generate_length",
        "areal": "gconfig.max_new_tokens", "slime": "--rollout-max-response-len", "open-instruct": "--response_length",
        "roll": "response_length",
    },
    "temperature": {
        "anygrpo": "policy.temperature", "trl": "temperature", "verl": "actor_rollout_ref.rollout.temperature",
        "openrlhf": "--rollout.temperature",
        "nemo-rl": "policy.generation.temperature", "ms-swift": "--temperature",
        "prime-rl": "orchestrator.sampling.temperature",
        "tinker": "temperature", "skyrl": "generator.sampling_params.temperature", "areal": "gconfig.temperature",
        "slime": "--rollout-temperature", "open-instruct": "--temperature",
    },
    "top_p": {
        "anygrpo": "policy.top_p", "trl": "top_p", "verl": "actor_rollout_ref.rollout.top_p",
        "openrlhf": "--rollout.top_p",
        "nemo-rl": "policy.generation.top_p", "ms-swift": "--top_p", "areal": "gconfig.top_p",
        "slime": "--rollout-top-p",
    },
    "clip": {
        "anygrpo": "algorithm.clip_low and algorithm.clip_high", "trl": "epsilon",
        "verl": "actor_rollout_ref.actor.clip_ratio",
        "openrlhf": "--actor.eps_clip", "nemo-rl": "loss_fn.ratio_clip_min and ratio_clip_max", "ms-swift": "--epsilon",
        "skyrl": "trainer.algorithm.eps_clip_low", "areal": "actor.eps_clip", "slime": "--eps-clip",
        "open-instruct": "--clip_lower",
    },
    "clip_high": {
        "anygrpo": "algorithm.clip_high", "trl": "epsilon_high", "verl": "actor_rollout_ref.actor.clip_ratio_high",
        "openrlhf": "--actor.eps_clip_low_high", "nemo-rl": "loss_fn.ratio_clip_max", "ms-swift": "--epsilon_high",
        "skyrl": "trainer.algorithm.eps_clip_high", "slime": "--eps-clip-high", "open-instruct": "--clip_higher",
    },
    "grad_clip": {
        "anygrpo": "optimizer.grad_clip", "trl": "max_grad_norm", "verl": "actor_rollout_ref.actor.grad_clip",
        "nemo-rl": "policy.max_grad_norm", "ms-swift": "--max_grad_norm", "prime-rl": "trainer.optim.max_norm",
        "slime": "--clip-grad",
    },
    "scale_rewards": {
        "anygrpo": "algorithm.advantage", "trl": "scale_rewards", "verl": "algorithm.norm_adv_by_std_in_grpo",
        "openrlhf": "--algo.advantage.estimator", "nemo-rl": "grpo.normalize_rewards", "ms-swift": "--scale_rewards",
    },
    "dynamic_sampling": {
        "anygrpo": "algorithm.refill", "verl": "algorithm.filter_groups.enable",
        "openrlhf": "--algo.dynamic_filtering_enable",
        "nemo-rl": "grpo.use_dynamic_sampling", "ms-swift": "--dynamic_sample",
        "slime": "--dynamic-sampling-filter-path",
        "skyrl": "trainer.algorithm.dynamic_sampling.type",
    },
    "entropy_coef": {
        "anygrpo": "algorithm.entropy_coef", "verl": "actor_rollout_ref.actor.entropy_coeff",
        "openrlhf": "--actor.entropy_coef", "slime": "--entropy-coef",
    },
    "updates_per_batch": {
        "anygrpo": "algorithm.epochs and algorithm.minibatches", "trl": "num_iterations",
        "verl": "actor_rollout_ref.actor.ppo_epochs",
        "openrlhf": "--train.max_epochs", "ms-swift": "--num_iterations",
    },
    "importance_cap": {
        "anygrpo": "algorithm.importance_cap", "trl": "vllm_importance_sampling_clip_max",
        "verl": "algorithm.rollout_correction.rollout_is_threshold",
        "openrlhf": "--algo.advantage.is_correction_threshold",
        "ms-swift": "--rollout_importance_sampling_threshold",
        "open-instruct": "--truncated_importance_sampling_ratio_cap",
    },
    "max_steps": {
        "anygrpo": "stages.steps", "trl": "max_steps", "verl": "trainer.total_training_steps",
        "openrlhf": "--train.num_episodes", "ms-swift": "--max_steps",
    },
    "precision": {
        "trl": "bf16", "anygrpo": "policy.dtype", "verl": "actor_rollout_ref.rollout.dtype",
        "ms-swift": "--torch_dtype",
    },
    "loss_reduction": {
        "anygrpo": "algorithm.reduction", "trl": "loss_type", "verl": "actor_rollout_ref.actor.loss_agg_mode",
        "ms-swift": "--loss_type",
    },
    "overlong_penalty": {
        "anygrpo": "algorithm.overlong_buffer",  "ms-swift": "--reward_funcs",
        "openrlhf": "--reward.overlong_penalty_factor",
    },
    "reference_model": {
        "anygrpo": "policy.reference", "verl": "actor_rollout_ref.ref", "openrlhf": "--actor.model_name_or_path",
        "ms-swift": "--ref_model",
    },
    "advantage": {
        "anygrpo": "algorithm.advantage", "verl": "algorithm.adv_estimator", "openrlhf": "--algo.advantage.estimator",
    },
    "lambda_supervised": {"anygrpo": "algorithm.lambda_supervised"},
    "lambda_consistency": {"anygrpo": "algorithm.lambda_consistency"},
    "warmup": {
        "anygrpo": "optimizer.learning_rate.warmup", "trl": "warmup_steps",
        "verl": "actor_rollout_ref.actor.optim.lr_warmup_steps",
    },
}  # fmt: skip

VALUES: dict[tuple[str, str], dict[str, str]] = {
    ("loss_reduction", "token-mean"): {"trl": "dapo", "ms-swift": "dapo", "verl": "token-mean",
                                       "anygrpo": "token_mean"},
    ("scale_rewards", "none"): {
        "trl": "none", "ms-swift": "none", "verl": "False", "nemo-rl": "false", "openrlhf": "dr_grpo",
        "anygrpo": "centred",
    },
    ("dynamic_sampling", "true"): {
        "verl": "True", "openrlhf": "", "nemo-rl": "true", "ms-swift": "true", "skyrl": "filter",
        "anygrpo": "3",
    },
    ("overlong_penalty", "on"): {"anygrpo": "128", "ms-swift": "soft_overlong", "openrlhf": "1.0"},
    ("advantage", "zscore"): {"anygrpo": "zscore", "verl": "grpo", "openrlhf": "group_norm"},
}  # fmt: skip
"""(concept, value) -> how each framework writes that value; a framework without an entry is told to check it."""

PLAIN: dict[str, str] = {
    "learning_rate": "learning_rate", "beta": "kl_beta", "clip": "clip_epsilon", "clip_high": "clip_high",
    "temperature": "temperature", "group_size": "group_size", "max_length": "max_length", "grad_clip": "max_grad_norm",
    "entropy_coef": "entropy_coef", "updates_per_batch": "updates_per_batch", "top_p": "top_p",
    "lambda_supervised": "lambda_sup", "lambda_consistency": "lambda_consistency",
}  # fmt: skip
"""The settings of a trainer of nobody's framework, under the words most notes use."""
SB3: dict[str, str] = {
    "learning_rate": "learning_rate", "clip": "clip_range", "entropy_coef": "ent_coef", "grad_clip": "max_grad_norm",
    "updates_per_batch": "n_epochs", "max_steps": "total_timesteps",
}  # fmt: skip

ALIASES: dict[str, tuple[str, ...]] = {
    "learning_rate": ("learning_rate", "lr", "actor_learning_rate"),
    "beta": (
        "beta",
        "kl_loss_coef",
        "kl_coef",
        "init_kl_coef",
        "reference_policy_kl_penalty",
        "kl_penalty_coef",
        "kl_weight",
        "kl_ctl",
    ),
    "group_size": (
        "group_size",
        "num_generations",
        "n_samples_per_prompt",
        "num_generations_per_prompt",
        "rollouts_per_example",
        "rollout.n",
    ),
    "max_length": (
        "max_length",
        "max_completion_length",
        "max_response_length",
        "generate_max_len",
        "max_new_tokens",
        "max_tokens",
    ),
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "clip": ("epsilon", "clip_ratio", "eps_clip", "clip_low", "clip_ratio_low", "eps_clip_low"),
    "clip_high": ("epsilon_high", "clip_ratio_high", "clip_high", "eps_clip_high"),
    "grad_clip": ("max_grad_norm", "grad_clip", "max_norm"),
    "scale_rewards": ("scale_rewards", "norm_adv_by_std_in_grpo"),
    "updates_per_batch": ("num_iterations", "ppo_epochs", "max_epochs"),
    "max_steps": ("max_steps", "total_training_steps"),
    "lambda_supervised": ("lambda_supervised", "lambda_sup"),
    "lambda_consistency": ("lambda_consistency", "lambda_cons"),
    "normaliser": ("normaliser", "normalizer", "advantage", "adv_estimator", "advantage_estimator"),
    "std_floor": ("std_floor", "floor"),
    "eval_questions": ("eval_questions", "evaluation.prompts", "eval_prompts", "num_eval_samples"),
    "entropy_coef": ("entropy_coef", "entropy_coeff"),
    "scoring_dropout": ("dropout_in_scoring",),
    "behaviour": ("policy.behaviour",),
    "dimensions": ("dimensions", "num_dims", "total_dims"),
}
"""Last parts of setting names, for reading configurations: the longest match wins."""


FOREIGN = {"critic", "reward_model", "ref", "value"}
"""Parts of a path that speak of another model."""


def concept_of(name: str) -> str | None:
    """The concept of a setting name ("actor_rollout_ref.actor.optim.lr" -> "learning_rate"), or None."""
    parts = name.strip().lstrip("-").replace("-", "_").lower().split(".")
    if found := WORDS_SETTING.get(parts[-1]):
        return found if not FOREIGN & set(parts[:-1]) else None
    for concept, names in ALIASES.items():
        for alias in names:
            wanted = alias.split(".")
            if parts[-len(wanted) :] == wanted and not FOREIGN & set(parts[:-1]):
                return concept
    return None


def concepts_of(settings: dict[str, Any]) -> dict[str, Any]:
    """concept -> value of every known setting; plain concepts pass through. The shortest path wins."""
    out: dict[str, Any] = {}
    for name in sorted(settings, key=lambda n: (n.count("."), n)):
        concept = concept_of(name)
        if concept and settings[name] is not None and not isinstance(settings[name], list | dict):
            out.setdefault(concept, settings[name])
        elif "." not in name:
            out.setdefault(name, settings[name])
    return out
