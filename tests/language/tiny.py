"""Tiny random models of the families, and a tokenizer of 60 words, made in memory."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

VOCABULARY = 64
_SIZE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
CONFIGS = {
    "llama": LlamaConfig(**_SIZE, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**_SIZE),
    "qwen3": Qwen3Config(**_SIZE, head_dim=16),
    "gemma": GemmaConfig(**_SIZE, head_dim=16),
    "mistral": MistralConfig(**_SIZE, head_dim=8, sliding_window=12),
    "gemma2": Gemma2Config(**_SIZE, head_dim=16, attn_logit_softcapping=2.0, final_logit_softcapping=1.5),
    "gpt2": GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=128, bos_token_id=0, eos_token_id=1
    ),
}
SHARING = ("llama", "qwen2", "qwen3", "gemma")


def model(
    kind: str = "llama",
    seed: int = 0,
    scale: float = 4.0,
    dtype: torch.dtype = torch.float32,
    config: PreTrainedConfig | None = None,
) -> nn.Module:
    """A random model with weights large enough that its distributions are far from uniform."""
    torch.manual_seed(seed)
    config = config or CONFIGS[kind]
    made = AutoModelForCausalLM.from_config(config.__class__(**config.to_dict()))
    with torch.no_grad():
        for name, p in made.named_parameters():
            if p.ndim > 1:
                p.mul_(scale)
            elif "norm" in name or "bias" in name:
                p.add_(0.1 * torch.randn_like(p))
    return made.to(dtype).eval()


def tokenizer(template: bool = False) -> PreTrainedTokenizerFast:
    words = ["<s>", "</s>", "<pad>", "<turn>"] + [f"w{i}" for i in range(VOCABULARY - 4)]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        additional_special_tokens=["<turn>"],
    )
    if template:
        made.chat_template = (
            "{% for m in messages %}<turn> {{ m['content'] }} </s> {% endfor %}"
            "{% if add_generation_prompt %}<turn> {% endif %}"
        )
    return made


PROMPTS = [[5, 9, 12, 7, 30], [8, 22, 41, 6, 13, 50, 19, 4], [33, 3]]
