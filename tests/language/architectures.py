"""Every causal architecture of the installed transformers as a tiny random model, in memory or in a folder."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from anygrpo.errors import ConfigError
from anygrpo.scratch import for_this_process

VOCABULARY = 300

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "vocab_size_per_layer_input": VOCABULARY, "hidden_size": 32, "d_model": 32, "n_embd": 32,
    "dim": 32, "embed_dim": 32, "emb_dim": 32, "word_embed_proj_dim": 32, "embedding_size": 32,
    "intermediate_size": 48, "ffn_dim": 48, "decoder_ffn_dim": 48, "encoder_ffn_dim": 48, "d_ff": 48, "d_inner": 48,
    "ffn_hidden_size": 48, "n_inner": 48, "dim_ff": 48, "mlp_hidden_size": 48, "expert_ffn_hidden_size": 48,
    "shared_intermediate_size": 48,
    "num_hidden_layers": 2, "n_layer": 2, "num_layers": 2, "decoder_layers": 2, "encoder_layers": 2, "n_layers": 2,
    "num_decoder_layers": 2, "num_encoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "decoder_attention_heads": 4,
    "encoder_attention_heads": 4, "num_key_value_heads": 2, "num_kv_heads": 2, "num_self_attention_heads": 4,
    "head_dim": 8, "global_head_dim": 8, "num_global_key_value_heads": 2, "swa_head_dim": 8,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
    "qk_head_dim": 16, "index_head_dim": 16, "index_n_heads": 2,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "num_routed_experts": 4,
    "num_experts_per_tok": 2, "num_experts_per_token": 2, "moe_topk": 2, "moe_top_k": 2, "moe_k": 2, "top_k_experts": 2,
    "moe_intermediate_size": 16, "moe_ffn_hidden_size": 16, "shared_expert_intermediate_size": 16,
    "expert_intermediate_size": 16, "moe_shared_expert_intermediate_size": 16, "n_shared_experts": 1,
    "n_group": 1, "topk_group": 1, "num_expert_group": 1, "topk_group_num": 1, "first_k_dense_replace": 1,
    "max_position_embeddings": 128, "n_positions": 128, "max_seq_len": 128, "max_sequence_length": 128, "n_ctx": 128,
    "max_target_positions": 128, "max_source_positions": 128, "max_seq_length": 128, "context_length": 128,
    "sliding_window": 64, "window_size": 64, "attention_window_size": 64, "attention_chunk_size": 64,
    "mamba_d_state": 8, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_d_head": 8, "mamba_n_heads": 8, "mamba_d_ssm": 64,
    "mamba_n_groups": 1, "mamba_chunk_size": 16, "state_size": 8, "mamba_num_heads": 8, "mamba_head_dim": 8,
    "ssm_state_size": 8, "n_groups": 1, "chunk_size": 16, "time_step_rank": 4, "mamba_dt_rank": 4, "n_mamba_heads": 2,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4, "conv_L_cache": 3, "lru_width": 32, "attention_hidden_size": 32, "rescale_every": 0,
    "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 0, "laurel_rank": 8, "altup_num_inputs": 2,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "is_decoder": True, "use_cache": True,
    "decoder_start_token_id": 1, "num_buckets": 8, "max_relative_position": 8, "rotary_dim": 4,
    "adapter_size": 8, "adapter_rank": 8, "use_mamba_kernels": False, "use_kernels": False,
    "unpadded_vocab_size": VOCABULARY, "num_nextn_predict_layers": 0, "num_mem_blocks": 1,
}  # fmt: skip
"""Small numbers for the names that configs use; each config takes those that it has."""

OWN: dict[str, dict[str, Any]] = {
    "mamba2": {"num_heads": 8},
    "deepseek_v2": {"num_experts_per_tok": 2, "topk_method": "greedy"},
    "zaya": {"num_experts_per_tok": 1},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "qwen4_exp_text": {"linear_num_key_heads": 2, "linear_num_value_heads": 4},
    "zamba2": {"attention_hidden_size": 64, "attention_head_dim": 16},
}
"""What single configs need beside these."""


def tiny_config(kind: str) -> Any:
    """The smallest config that this file knows how to make of an architecture."""
    config = AutoConfig.for_model(kind)
    config = type(config)(**_fit(type(config), config))
    return config


def _fit(kind: type, default: Any) -> dict[str, Any]:
    plain = {k: v for k, v in default.to_dict().items() if k != "model_type"}
    given: dict[str, Any] = {}
    for name, value in SIZES.items():
        if name in plain and (plain[name] is not None or name in _ALWAYS):
            given[name] = value
    for name in default.sub_configs if hasattr(default, "sub_configs") else ():
        part = getattr(default, name, None)
        if part is not None:
            given[name] = _fit(type(part), part)
    layers = next((given[n] for n in ("num_hidden_layers", "n_layer", "num_layers") if n in given), 2)
    for name, value in plain.items():
        if isinstance(value, list) and name not in given and len(value) > layers and name.endswith(_PER_LAYER):
            given[name] = _kinds(value, layers)
    if "qk_rope_head_dim" in given and "num_attention_heads" in given:  # latent attention: a key head for each head
        given |= {"num_key_value_heads": given["num_attention_heads"]}
    given |= OWN.get(default.model_type, {})
    return given


_ALWAYS = ("head_dim", "num_key_value_heads", "pad_token_id", "bos_token_id", "eos_token_id", "is_decoder")
_PER_LAYER = ("layer_types", "layers_block_type", "layer_type", "_types", "pattern", "layers")


def _kinds(value: list[Any], count: int) -> list[Any]:
    """`count` entries in which as many different kinds as possible occur."""
    seen = list(dict.fromkeys(map(str, value)))
    first = [next(v for v in value if str(v) == s) for s in seen]
    return (first + value)[:count] if len(first) <= count else first[:count]


def tiny_model(kind: str, scale: float = 2.0) -> nn.Module:
    """A random model whose matrices are enlarged, so that its choices are far from uniform."""
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(tiny_config(kind))
    with torch.no_grad():
        for name, p in made.named_parameters():
            if not p.isfinite().all():
                nn.init.normal_(p, std=0.1)
            if p.dim() >= 2 and "conv" not in name:
                p.mul_(scale)
    made.generation_config = GenerationConfig(eos_token_id=2, pad_token_id=0, bos_token_id=1)
    return made.float().eval()


def saved(kind: str, folder: Path, tokenizer: Any) -> str:
    """The folder of such a model."""
    tiny_model(kind).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def forward_takes(model: nn.Module, name: str) -> bool:
    return name in inspect.signature(model.forward).parameters


# -- through everything ------------------------------------------------------------------------------------------

LENGTHS = (7, 5)

WRONG = 2e-3
"""Nats beyond which a difference is not rounding."""

HARD = (
    "qwen3", "qwen3_moe", "qwen3_5_text", "gemma3_text", "gemma4_text", "llama", "mistral", "mixtral", "deepseek_v3",
    "gpt_oss", "glm", "glm4_moe", "phi", "phi3", "granite", "granitemoe", "olmo", "olmo2", "olmoe", "lfm2", "falcon_h1",
    "mamba", "mamba2",
)  # fmt: skip
"""None of these may be refused."""


def tokenizer() -> Any:
    """Words w0 ... of the whole vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<s>", "</s>"] + [f"w{i}" for i in range(VOCABULARY - 3)]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>")


def through(kind: str) -> dict[str, Any]:
    """Built, loaded, sampled, scored, updated by adapters and in full, exported and loaded again.

    state: "unbuilt" (this file or the library cannot make a tiny one, or its own forward does not run), "refused" (an
    error with a cure), "crash" (any other error), "silent" (wrong numbers without a word), "plain" or "exact".
    """
    row: dict[str, Any] = {"kind": kind, "state": "unbuilt", "why": "", "notes": []}
    try:
        model = tiny_model(kind)
        size = sum(p.numel() for p in model.parameters())
        if size > 2e7:
            raise ValueError(f"the smallest one made here has {size / 1e6:.0f} million weights")
        with torch.no_grad():
            logits = model(input_ids=torch.arange(5, 22)[None], use_cache=False).logits
        if not bool(logits.isfinite().any(-1).all()):
            raise ValueError("a random model gives no numbers")
    except Exception as error:
        return row | {"why": _line(error)}
    try:
        worst, exact, notes = 0.0, True, []
        for train in ("lora", "all"):
            made = _trained(tiny_model(kind), train)
            worst, exact = max(worst, made["gap"]), exact and made["exact"]
            notes += made["notes"]
    except ConfigError as error:
        return row | {"state": "refused", "why": _line(error)}
    except Exception as error:
        return row | {"state": "crash", "why": _line(error)}
    state = "silent" if worst > WRONG else "exact" if exact else "plain"
    return row | {"state": state, "why": f"{worst:.1e}", "notes": list(dict.fromkeys(notes))}


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _trained(model: nn.Module, train: str) -> dict[str, Any]:
    """One update; the largest gap between our log-probs and those of the library's own forward, before and after, and
    of the exported folder loaded again."""
    from anygrpo.language.build import from_model
    from anygrpo.language.export import write
    from anygrpo.language.settings import CausalLMConfig

    base = str(for_this_process("model"))
    model.save_pretrained(base)
    config = CausalLMConfig(
        kind="causal_lm", model=base, train=train, max_new_tokens=6, dtype="float32", device="cpu", threads=1
    )
    policy = from_model(model, tokenizer(), config, seed=1)
    prompts = [{"prompt": " ".join(f"w{7 * i + 3 * n}" for i in range(n))} for n in LENGTHS]
    rollout = policy.sample(prompts, 2, seed=3)
    rows = {name: x.flatten(0, 1) for name, x in rollout.samples.items()}
    before = _gap(policy.weights.training_model(), rows, rollout.log_probs.flatten(0, 1))
    optimizer = torch.optim.Adam(policy.parameters(), 1e-2)
    made = policy.evaluate(rows, slice(0, rollout.shape[2])).log_probs
    made.sum().neg().backward()
    optimizer.step()
    with torch.no_grad():
        after = policy.evaluate(rows, slice(0, rollout.shape[2])).log_probs
    if torch.equal(after, made.detach()):
        raise AssertionError("an update changed nothing")
    folder = for_this_process("model")
    write(policy, folder, "merged" if train == "lora" else "full")
    again = type(model).from_pretrained(folder, dtype=torch.float32).eval()
    gaps = (before, _gap(policy.weights.training_model(), rows, after), _gap(again, rows, after))
    notes = list(policy.scorer.paths.notes)
    if train == "lora" and _gap(_with_adapters(policy, base), rows, after) > WRONG:
        notes.append("PEFT does not load its own adapter folder as it was: export refuses that format, merged works")
    return {"gap": max(gaps), "exact": policy.scorer.paths.exact, "notes": notes}


def _with_adapters(policy: Any, base: str) -> nn.Module:
    from peft import PeftModel

    from anygrpo.language.export import write

    folder = for_this_process("model")
    write(policy, folder, "peft")
    plain = type(policy.weights.base).from_pretrained(base, dtype=torch.float32)
    return PeftModel.from_pretrained(plain, folder).eval()


def _gap(model: nn.Module, rows: dict[str, torch.Tensor], ours: torch.Tensor) -> float:
    """Largest difference to the library's own forward of each row by itself."""
    worst = 0.0
    for i, (a, c) in enumerate(zip(rows["prompt_lengths"].tolist(), rows["completion_lengths"].tolist())):
        ids = torch.cat([rows["prompt_ids"][i][:a], rows["completion_ids"][i][:c]])[None]
        with torch.no_grad():
            logs = model(input_ids=ids, use_cache=False).logits[0, a - 1 : a - 1 + c].float().log_softmax(-1)
        worst = max(worst, float((logs.gather(1, ids[0, a:, None])[:, 0] - ours[i, :c]).abs().max()))
    return worst


STATES = {
    "exact": "the fast path: shared prompts, our output layer, proved equal",
    "plain": "plain passes: the library's own forward for what is named",
    "refused": "refused, with the reason",
    "crash": "an error that is not ours to word (see there)",
    "slow": "not finished in time, or its process was killed",
    "silent": "wrong numbers without a word",
    "unbuilt": "no tiny model could be made by tests/language/architectures.py, or its own forward does not run",
}


Older = Sequence[tuple[dict[str, str], list[dict[str, Any]]]]


def page(rows: list[dict[str, Any]], made: dict[str, str], older: Older = ()) -> str:
    """docs/models.md of the rows that `made` (library -> version) gave, beside the states of others."""
    count = {state: sum(row["state"] == state for row in rows) for state in STATES}
    head = (
        "# Causal language models of transformers\n\n"
        f"Written by `tests/language/every_architecture.py` with {_said(made)}. Each architecture is made tiny and "
        "random, loaded, sampled, scored, updated by adapters and in full, exported and loaded again by the library. "
        "Every log-prob is compared with the library's own forward of each row by itself.\n\n"
        f"{_counted(rows)}\n"
    )
    head += "".join(f"\nWith {_said(v)}: {_counted(r)[0].lower() + _counted(r)[1:]}\n" for v, r in older)
    key = "\n" + "".join(f"- {state}: {text} ({count[state]})\n" for state, text in STATES.items() if count[state])
    others = [{row["kind"]: row["state"] for row in r} for _, r in older]
    names = ["model type", "state", *(v["transformers"] for v, _ in older), "why, and what is left to the library"]
    table = f"\n| {' | '.join(names)} |\n|{' --- |' * len(names)}\n"
    for row in sorted(rows, key=lambda r: r["kind"]):
        said = "; ".join(dict.fromkeys(row["notes"])) if row["state"] in ("exact", "plain") else row["why"]
        cells = [f"`{row['kind']}`", row["state"], *(o.get(row["kind"], "not there") for o in others), _cell(said)]
        table += f"| {' | '.join(cells)} |\n"
    return head + key + table


def _said(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _cell(text: str) -> str:
    """One line that Markdown shows as it is; a long one ends at a word, and says that it goes on."""
    words = " ".join(str(text).split()).replace("|", "/").replace("<", "&lt;")
    return words if len(words) <= 240 else words[:240].rpartition(" ")[0].rstrip(",;:") + " ..."


def _counted(rows: list[dict[str, Any]]) -> str:
    count = {state: sum(row["state"] == state for row in rows) for state in STATES}
    return (
        f"{count['exact'] + count['plain']} of the {len(rows) - count['unbuilt']} that can be built train with the "
        f"library's numbers (within {WRONG:g} nats); {count['silent']} give other numbers in silence."
    )
