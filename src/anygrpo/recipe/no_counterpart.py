"""Words of other libraries that need no key here, or have none: what is said of each. Torch-free."""

from __future__ import annotations

from anygrpo.recipe import trl_keys, verl_keys
from anygrpo.spoken import Text

_MACHINE = Text(
    "no key: how work is laid on the machine is found here; any split gives the same gradient",
    "不需要键：怎样摆放到机器上由程序自己决定；怎么切分，梯度都相同",
)
_KEPT = Text(
    "no key: metrics, samples and checkpoints are always kept in the run's folder",
    "不需要键：指标、样本和检查点总会写进运行文件夹",
)
_CRITIC = Text(
    "nothing: there is no critic; advantages come from the group", "没有：这里没有评论家网络；优势来自组内比较"
)
_ADAMW = Text(
    'no key: the optimizer is AdamW; optimizer.moments = "8bit" holds its moments in bytes',
    '不需要键：优化器是 AdamW；optimizer.moments = "8bit" 用 8 位存动量',
)
_PLACES = Text("no key: ", "没有对应的键：")
_SWIFT = (
    "sleep_level", "offload_optimizer", "offload_model", "vllm_enable_lora", "move_model_batches", "padding_free",
    "packing", "vllm_max_model_len", "split_dataset_ratio", "check_model", "use_hf", "attn_impl", "num_workers",
    "load_from_cache_file", "async_generate",
)  # fmt: skip
_OPENRLHF = (
    "colocate_all_models", "flash_attn", "packing_samples", "adam_offload", "ref_num_gpus_per_node", "actor_num_nodes",
    "actor_num_gpus_per_node", "vllm_sync_backend", "enforce_eager", "ring_attn_size", "vllm_enable_sleep",
)  # fmt: skip
_LOGS = ("logging_steps", "log_interval", "log_freq", "logging_freq", "print_freq", "print_every")


def no_counterpart(key: str) -> Text | None:
    """What is said of another library's word, dotted where it stands in tables, that no key here answers; None for a
    word that is not known."""
    if key in _KNOWN or "." not in key:
        return _KNOWN.get(key)
    for words, why in ((verl_keys.MACHINE, _MACHINE), (verl_keys.SAID, _KEPT)):
        if any(key == word or (word.endswith(".") and key.startswith(word)) for word in words):
            return why
    return _PLACES + verl_keys.ABSENT[key] if key in verl_keys.ABSENT else None


def _last(words: tuple[str, ...]) -> list[str]:
    """Dotted keys by their last word, where it is long enough to mean one thing only."""
    ends = [word.rstrip(".").rpartition(".")[2] for word in words]
    return [end for end in ends if "_" in end]


def _absent() -> dict[str, Text]:
    ends = {key.rpartition(".")[2]: why for key, why in verl_keys.ABSENT.items()} | trl_keys.ABSENT
    return {key: _PLACES + why for key, why in ends.items() if "_" in key or key in trl_keys.ABSENT}


_KNOWN: dict[str, Text] = {
    **dict.fromkeys(_last(verl_keys.MACHINE), _MACHINE),
    **dict.fromkeys((*trl_keys.MACHINE, *_SWIFT, *_OPENRLHF), _MACHINE),
    **dict.fromkeys((*_last(verl_keys.SAID), *trl_keys.SAID, *_LOGS), _KEPT),
    **_absent(),
    **dict.fromkeys(
        (
            "gae_lambda",
            "lam",
            "vf_coef",
            "value_loss_coef",
            "critic",
            "critic_learning_rate",
            "value_clip",
            "cliprange_value",
        ),
        _CRITIC,
    ),
    "vllm_gpu_memory_utilization": Text("here that is policy.engine_memory", "这里是 policy.engine_memory"),
    "gpu_memory_utilization": Text("here that is policy.engine_memory", "这里是 policy.engine_memory"),
    "disable_dropout": Text(
        "no key: sampling and scoring are always without dropout", "不需要键：采样与打分总是关闭 dropout"
    ),
    "prompt_max_len": _PLACES + trl_keys.ABSENT["max_prompt_length"],
    "do_sample": Text("no key: training samples; evaluation is greedy", "不需要键：训练时采样，评估时取最可能的"),
    "optim_optimizer": _ADAMW,
    "optim": _ADAMW,
    "optimizer_type": _ADAMW,
    "vllm_limit_mm_per_prompt": Text("no key: a prompt may hold as many as fit", "没有对应的键：放得下即可"),
    "use_bias_correction_kl": Text(
        "no key: the gradient of every KL estimator is right in expectation (algorithm.kl)",
        "不需要键：每种 KL 估计的梯度在期望上都正确（algorithm.kl）",
    ),
    "mean_ratio": Text(
        "a measure, no setting: ratio/mean in metrics.jsonl", "这是指标，不是设置：metrics.jsonl 里的 ratio/mean"
    ),
    "mean_advantage": Text("a measure, no setting: advantage/mean", "这是指标，不是设置：advantage/mean"),
    "std_reward": Text("a measure, no setting: reward/std", "这是指标，不是设置：reward/std"),
    "trainer.critic_warmup": _CRITIC,
    "data.shuffle": _PLACES + trl_keys.ABSENT["shuffle_dataset"],
    "dataset_shuffle": _PLACES + trl_keys.ABSENT["shuffle_dataset"],
    "use_kl_loss": Text("no key: algorithm.beta = 0 means no KL", "不需要键：algorithm.beta = 0 就没有 KL"),
    "use_kl_in_reward": Text(
        "no key: the KL is a term of the loss, weighed by algorithm.beta",
        "没有对应的键：KL 是损失的一项，权重为 algorithm.beta",
    ),
}
