"""What lies beside a language model's weights so that PEFT or transformers load a checkpoint's folder as it is."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from anygrpo.core import hub
from anygrpo.core.saved import Form, fixed_of
from anygrpo.core.trained import state_of
from anygrpo.models.loading import named
from anygrpo.models.origin import origin
from anygrpo.scratch import Scratch

if TYPE_CHECKING:
    from anygrpo.language.policy import CausalLM

ADAPTER, MODEL = "adapter_model.safetensors", "model.safetensors"


def names_of(policy: CausalLM) -> dict[str, str]:
    """PEFT's files leave out the adapter's name: "lora_A.default.weight" is "lora_A.weight" there."""
    return {name: name.replace(".default.", ".") for name in state_of(policy.trainable()) if ".lora_" in name}


def form_of(policy: CausalLM) -> Form:
    """PEFT's folder of adapters; transformers' of a model whose weights are all trained. Otherwise the weights alone:
    some layers of a model are no folder of any library, nor are adapters on a base that lies in no folder (training
    went on from an adapter or a run)."""
    if policy.config.train == "lora":
        if origin(policy.config.model).kind != "plain":
            return Form()
        beside = {"adapter_config.json": _written(adapter_config(policy), "adapter_config.json")}
        return Form(ADAPTER, beside=beside, split=False)
    if policy.config.train != "all":
        return Form()
    generating = _written(generation_config(policy), "generation_config.json")
    beside = {"config.json": _model_config(policy), "generation_config.json": generating}
    return Form(MODEL, beside=beside, fixed=fixed_of(policy.weights.module, state_of(policy.trainable())))


def adapter_config(policy: CausalLM) -> Any:
    """PEFT's settings of the adapters, with the base model's own place in them."""
    module: Any = policy.weights.module
    base = policy.config.model
    (config,) = (copy.copy(c) for c in module.peft_config.values())
    config.revision = hub.split(base)[1]
    config.base_model_name_or_path = named(base)
    return config


def generation_config(policy: CausalLM) -> Any:
    """The distribution that was trained: its end tokens, temperature and cuts, and nothing of the base's own."""
    from transformers import GenerationConfig

    tokenizer, ends = policy.prompts.tokenizer, list(policy.prompts.ends)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else ends[0]
    return GenerationConfig(
        eos_token_id=ends,
        pad_token_id=pad,
        bos_token_id=tokenizer.bos_token_id,
        do_sample=True,
        temperature=policy.temperature,
        top_p=policy.top_p,
        top_k=policy.top_k or 0,
        max_new_tokens=policy.config.max_new_tokens,
    )


def _model_config(policy: CausalLM) -> str:
    model: Any = policy.weights.base
    config = copy.deepcopy(model.config)
    config._attn_implementation = "sdpa" if config._attn_implementation == "anygrpo" else None
    config.architectures = [type(model).__name__]
    return config.to_json_string()


def _written(config: Any, name: str) -> str:
    """The text of the file that a library's config writes."""
    with Scratch("config") as folder:
        config.save_pretrained(folder)
        return (folder / name).read_text(encoding="utf-8")
