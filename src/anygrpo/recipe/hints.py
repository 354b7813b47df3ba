"""What an unknown key was meant to be: another table's, a word of another library's, or a slip. Torch-free.

A hint never names a setting of another meaning: words of other libraries are listed here, and only what is written
almost like a key is taken for a slip.
"""

from __future__ import annotations

import typing
from collections.abc import Collection, Iterator
from typing import Any

from pydantic import BaseModel

from anygrpo.spoken import say

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
    **dict.fromkeys(("entropy_coeff", "ent_coef", "entropy_bonus"), "algorithm.entropy_coef"),
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
        ("warmup_steps", "warmup_ratio", "lr_scheduler_type", "lr_scheduler"),
        'a schedule: optimizer.learning_rate = { kind = "cosine", start = 1e-5, warmup = 10 }',
    ),
    **dict.fromkeys(("max_steps", "total_steps", "num_steps", "total_training_steps"), "training.steps"),
    **dict.fromkeys(("num_train_epochs", "total_epochs"), "epochs of a stage: [[stages]] epochs = 1"),
    **dict.fromkeys(("per_device_train_batch_size", "micro_batch_size"), "training.rows_per_block"),
    **dict.fromkeys(("train_batch_size", "rollout_batch_size"), "algorithm.prompts_per_step (prompts, not samples)"),
    **dict.fromkeys(("save_steps", "save_freq", "save_every"), "training.checkpoint_every"),
    **dict.fromkeys(("save_total_limit", "max_checkpoints"), "training.keep_checkpoints"),
    **dict.fromkeys(("report_to", "logger"), "training.sinks"),
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

FEW = 12


def meant(key: str, known: Collection[str], root: type[BaseModel] | None = None) -> str:
    """What to say of an unknown `key` of a table whose keys are `known`, in a recipe of the class `root`."""
    key = key.lower()
    if key in known:
        return say(f"keys are written small: {key!r}", f"键用小写：{key!r}")
    ours = next((name for name in HERE.get(key, ()) if name in known), None)
    if ours is not None:
        return say(f"it is called {ours!r} here", f"这里叫 {ours!r}")
    places = _places(root) if root is not None else {}
    if key in places:
        there = " or ".join(places[key])
        return say(f"it belongs to another table: {there}", f"它属于另一张表：{there}")
    if key in OURS:
        return say(f"here that is {OURS[key]}", f"这里是 {OURS[key]}")
    for words in (known, places):
        close = min(words, key=lambda word: (slips(key, word), word), default="")
        if close and slips(key, close) <= (1 if len(key) < 8 else 2):
            where = "" if words is known else f" ({' or '.join(places[close])})"
            return say(f"did you mean {close!r}?", f"是否想写 {close!r}？") + where
    if not known:
        return say("remove it", "请删去")
    if len(known) <= FEW:
        return say("known: ", "可用：") + ", ".join(sorted(known))
    return say("anygrpo settings lists what there is", "anygrpo settings 列出所有键")


def slips(a: str, b: str) -> int:
    """Letters left out, put in, exchanged or swapped with their neighbour between two words (optimal alignment)."""
    before, row = list[int](), list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, before, row = before, row, [i]
        for j, y in enumerate(b, 1):
            least = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                least = min(least, last[j - 2] + 1)
            row.append(least)
    return row[-1]


def _places(root: type[BaseModel]) -> dict[str, list[str]]:
    """Key -> where the tables of this recipe have it, dotted."""
    out: dict[str, list[str]] = {}
    for name in ("algorithm", "optimizer", "training", "evaluation", "doctor", "policy", "task"):
        field = root.model_fields.get(name)
        for section in _models(field.annotation) if field is not None else ():
            for key in section.model_fields.keys() - {"kind"}:
                out.setdefault(key, []).append(f"{name}.{key}")
    return out


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    else:
        for arg in typing.get_args(annotation):
            yield from _models(arg)
