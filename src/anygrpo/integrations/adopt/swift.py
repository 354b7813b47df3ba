"""ms-swift's `swift rlhf --rlhf_type grpo` as a recipe: its names are brought to TRL's, its defaults are its own."""

from __future__ import annotations

from typing import Any

from anygrpo.integrations.adopt import trl
from anygrpo.integrations.adopt.moving import Found, Ledger, as_list
from anygrpo.recipe.trl_keys import DEFAULTS

_NAMES = {
    "model": "model_name_or_path", "max_length": "max_prompt_length",
    "lora_rank": "lora_r", "target_modules": "lora_target_modules",
    "overlong_filter": "mask_truncated_completions", "tau_pos": "sapo_temperature_pos",
    "tau_neg": "sapo_temperature_neg", "dataset_shuffle": "shuffle_dataset",
    "rollout_importance_sampling_threshold": "vllm_importance_sampling_clip_max",
    "vllm_server_host": "vllm_server_host", "use_hf": "use_hf",
}  # fmt: skip
_DEFAULTS: dict[str, Any] = {
    "per_device_train_batch_size": 1, "weight_decay": 0.1, "adam_beta2": 0.95, "lr_scheduler_type": "cosine",
    "temperature": 0.9, "beta": 0.04, "loss_type": "grpo", "lora_r": 8, "lora_alpha": 32, "lora_dropout": 0.05,
    "lora_target_modules": "all-linear", "report_to": ["tensorboard"], "vllm_importance_sampling_correction": False,
    "vllm_importance_sampling_clip_max": 2.0, "vllm_gpu_memory_utilization": 0.9, "use_peft": True,
    "router_aux_loss_coef": 0.0,
}  # fmt: skip
_REWARDS = {"accuracy": "accuracy_reward", "format": "think_format_reward"}
_MACHINE = (
    "rlhf_type", "load_from_cache_file", "offload_optimizer", "offload_model", "sleep_level", "vllm_enable_lora",
    "vllm_max_model_len", "move_model_batches", "dataloader_num_workers", "split_dataset_ratio", "dataset_num_proc",
    "vllm_limit_mm_per_prompt", "async_generate", "bnb_4bit_quant_type", "quant_method", "torch_dtype", "use_hf",
    "check_model", "stop_words", "num_workers", "attn_impl", "padding_free", "packing",
)  # fmt: skip


def move(found: Found) -> Ledger:
    """A ledger with TRL's names, and what has none there."""
    given = {_NAMES.get(key, key): value for key, value in found.given.items()}
    kind = given.pop("tuner_type", given.pop("train_type", "lora"))
    given["use_peft"] = kind != "full"
    if given.pop("quant_bits", None) in (4, 8):
        given["load_in_4bit" if found.given.get("quant_bits") == 4 else "load_in_8bit"] = True
    if given.get("torch_dtype") in ("float16", "float32"):
        given["bf16"], given["fp16"] = False, given["torch_dtype"] == "float16"
    if "enable_thinking" in given:
        given["chat_template_kwargs"] = {"enable_thinking": given.pop("enable_thinking")}
    _data(found, given)
    _rewards(found, given)
    draws = given.pop("max_resample_times", 3) if given.pop("dynamic_sample", False) else 0
    estimator = given.pop("advantage_estimator", "grpo")
    if given.get("scale_rewards") == "gdpo":
        given["scale_rewards"], given["multi_objective_aggregation"] = "group", "normalize_then_sum"
    found.given = given
    rate = {"learning_rate": 1e-4 if given["use_peft"] else 1e-5}
    book = trl.move(found, DEFAULTS | _DEFAULTS | rate, _MACHINE)
    if draws:
        book.say("algorithm.refill", int(draws), f"dynamic_sample = true, max_resample_times = {draws}")
    if estimator in ("rloo", "reinforce_plus_plus"):
        name = {"rloo": "leave_one_out", "reinforce_plus_plus": "whitened"}[estimator]
        book.say("algorithm.advantage", name, f"advantage_estimator = {estimator}")
    return book


def _data(found: Found, given: dict[str, Any]) -> None:
    sets = [str(name) for name in as_list(given.pop("dataset", None))]
    if sets:
        name, _, count = sets[0].partition("#")
        found.data["path"] = name.partition(":")[0]
        if count:
            found.notes.append(f"{sets[0]}: all of its rows are used here, not {count} of them")
    if len(sets) > 1:
        found.notes.append(
            f"several data sets ({', '.join(sets[1:])} too): a mixture has a share of each (docs/language.md)"
        )
    if isinstance(given.get("system"), str):
        found.data["system"] = given.pop("system")
    columns = given.pop("columns", None)
    if isinstance(columns, dict):
        found.data["prompt_column"] = next((k for k, v in columns.items() if v in ("query", "prompt")), "prompt")
        found.notes.append(f"columns = {columns}: rename them in the file, or name them in the recipe's rewards")


def _rewards(found: Found, given: dict[str, Any]) -> None:
    plugins = as_list(given.pop("external_plugins", None))
    for name in as_list(given.pop("reward_funcs", None)):
        if name in _REWARDS:
            found.rewards.append(("trl", _REWARDS[name]))
        elif name == "repetition":
            found.rewards.append(("trl", f"get_repetition_penalty_reward({given.pop('repetition_n_grams', 3)})"))
        elif name == "soft_overlong":
            cache = given.pop("soft_cache_length", 256)
            found.rewards.append(("trl", f"get_soft_overlong_punishment({given.pop('soft_max_length', 0)}, {cache})"))
        else:
            where = f" (registered in {plugins[0]}: write it as a function)" if plugins else ""
            found.rewards.append(("elsewhere", f"{name}{where}"))
    for name in as_list(given.pop("reward_model", None)):
        found.rewards.append(("model", str(name)))
