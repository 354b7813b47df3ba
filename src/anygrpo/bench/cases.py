"""The cases of `anygrpo bench llm`, and the prompts and models that both sides are given."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError, suggestion
from anygrpo.spoken import Text


@dataclass(frozen=True)
class Case:
    """One piece of work: an optimizer step on P x G samples.

    Attributes:
        name: as on the command line.
        model: "smollm2", a folder or Hub name, or `shape:NAME` for random weights in a known shape.
        prompts, group: P and G.
        prompt_tokens: about this many in each prompt.
        new_tokens: exactly this many in each completion; at most, where `mean_tokens` is given.
        dtype: of the matrix products; trained weights are float32 on both sides.
        rows: rows in one of the peer's micro-batches.
        mean_tokens: completions end by themselves, about geometrically with this mean; 0: none does.
    """

    name: str
    prompt_tokens: int
    new_tokens: int
    model: str = "smollm2"
    prompts: int = 4
    group: int = 8
    dtype: str = "float32"
    rows: int = 8
    mean_tokens: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


_QWEN = "shape:qwen2.5-0.5b"
CASES = {
    case.name: case
    for case in (
        Case("short", 190, 64),
        Case("long", 740, 64),
        Case("reply", 200, 512),
        Case("gpu-short", 256, 256, _QWEN, 8, 16, "bfloat16", 16),
        Case("gpu-long", 1024, 256, _QWEN, 8, 16, "bfloat16", 16),
        Case("ragged", 256, 4096, _QWEN, 8, 16, "bfloat16", 16, mean_tokens=256),
        Case("reason", 256, 16384, _QWEN, 8, 8, "bfloat16", 8, mean_tokens=2048),
        Case("tiny-ragged", 24, 64, "shape:tiny", 2, 4, "float32", 4, mean_tokens=8),
        Case("tiny", 24, 6, "shape:tiny", 2, 4, "float32", 4),
    )
}


def case_named(name: str, **changes: Any) -> Case:
    """A case, with the fields that are given (not None) in place of its own."""
    if name not in CASES:
        raise ConfigError(Text(f"no benchmark case {name!r}", f"没有基准用例 {name!r}"), suggestion(name, CASES))
    return replace(CASES[name], **{key: value for key, value in changes.items() if value is not None})


def prompt_texts(tokenizer: Any, count: int, tokens: int, seed: int = 0) -> list[str]:
    """Texts of about `tokens` tokens from words that are one token each, no two alike."""
    rng = random.Random(seed)
    pieces = (tokenizer.convert_tokens_to_string([t]) for t in sorted(tokenizer.get_vocab()))
    words = sorted(
        {p.strip() for p in pieces if p.strip().isascii() and p.strip().isalnum() and 1 < len(p.strip()) < 9}
    )
    single = [w for w in rng.sample(words, min(len(words), 3000)) if len(tokenizer(" " + w)["input_ids"]) == 1]
    return [
        " ".join(rng.choice(single) for _ in range(tokens + rng.randint(-tokens // 25, tokens // 25)))
        for _ in range(count)
    ]


def reward_of(text: str) -> float:
    """Some reward that differs between samples however long they are: the sum of the characters' codes, modulo 7."""
    return float(sum(map(ord, text)) % 7)


_SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-0.5b": {
        "vocab_size": 151936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32768,
    },
    "qwen2.5-1.5b": {
        "vocab_size": 151936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32768,
    },
    "qwen2.5-7b": {
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": False,
    },
    "smollm2-135m": {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
        "attention_bias": False,
    },
    "tiny": {
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    },
}


def model_folder(name: str, scratch: Path, saved: bool = True) -> str:
    """A folder to load: the model itself, or for `shape:NAME` one made under `scratch`.

    Args:
        saved: with its random weights, which two processes then share; False: each makes its own, on its device.
    """
    if not name.startswith("shape:"):
        from anygrpo.models.loading import resolve

        return resolve(name)
    shape = name.removeprefix("shape:")
    if shape not in _SHAPES:
        raise ConfigError(Text(f"no model shape {shape!r}", f"没有模型规格 {shape!r}"), suggestion(shape, _SHAPES))
    folder = scratch / shape
    if not (folder / "config.json").is_file():
        _describe(_SHAPES[shape], folder)
    if saved and not (folder / "model.safetensors").is_file():
        _save_random(folder)
    return str(folder)


def _describe(shape: dict[str, Any], folder: Path) -> None:
    """Config and tokenizer of a shape, without weights."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, PreTrainedTokenizerFast

    words = ["<eos>", "<pad>"] + [f"w{i}" for i in range(shape["vocab_size"] - 2)]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", pad_token="<pad>").save_pretrained(folder)
    # Llama's code with biases is Qwen2's arithmetic; its folder may hold any tokenizer, where Qwen2's may not.
    ends: dict[str, Any] = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 1}
    sizes: dict[str, Any] = {"attention_bias": True, "tie_word_embeddings": True, "random_weights": 0} | shape | ends
    LlamaConfig(**sizes, architectures=["LlamaForCausalLM"]).save_pretrained(folder)


def _save_random(folder: Path) -> None:
    import torch

    from anygrpo.models.loading import random_model
    from anygrpo.models.smollm2 import quiet

    model: Any = random_model(str(folder), torch.float32, "cuda" if torch.cuda.is_available() else "cpu", 0)
    del model.config.random_weights
    with quiet():
        model.save_pretrained(folder)
