"""Memory of one rank that trains a causal language model, worked out from its config; no weights are loaded.

What is counted, in bytes (W: weights, B: those in blocks, A: trained ones, c: bytes of the computing type):

    weights     adapters: W c + 4 A; full: 4 W (+ c W for the casts of the training pass where c < 4)
    sampler     adapters or casts: c W of merged weights; else the weights themselves
    gradients   4 A
    optimizer   8 A (two moments in float32)
    activations of one training block of `token_budget` tokens, without recomputation: per layer and token
                6 H + 2 K + 3 F values of c bytes (inputs of norms and products; attention holds no square); with
                gradient checkpointing H per layer, and one layer whole
    cache       keys and values of the rows decoded at once, at their longest: 2 K c per layer and token

With parallel = "fsdp" blocks' weights, gradients and moments are divided by the number of ranks. Logits are made in
pieces and allocator and kernel workspaces are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from anygrpo.config.language import CausalLMConfig
from anygrpo.config.recipe import Recipe
from anygrpo.samplers.loading import resolve

_GB = 2**30


@dataclass(frozen=True)
class Shape:
    """A model's sizes: all weights, those in blocks, inputs plus outputs of blocks' linear layers (`linear`), layers,
    hidden size H, width of keys K, width of the MLP F."""

    weights: int
    blocks: int
    linear: int
    layers: int
    hidden: int
    keys: int
    mlp: int


def shape_of(config: Any) -> Shape:
    """Count a `transformers` config's model on the meta device."""
    from torch import nn
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m)]
    blocks = max(lists, key=lambda m: sum(p.numel() for p in m.parameters()))
    linear = [m for m in blocks.modules() if isinstance(m, nn.Linear)]
    text = config.get_text_config()
    heads = text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // heads
    return Shape(
        weights=sum(p.numel() for p in model.parameters()),
        blocks=sum(p.numel() for p in blocks.parameters()),
        linear=sum(m.in_features + m.out_features for m in linear),
        layers=len(blocks),
        hidden=text.hidden_size,
        keys=width * (getattr(text, "num_key_value_heads", None) or heads),
        mlp=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
    )


def read_shape(policy: CausalLMConfig) -> Shape:
    """The shape of a recipe's model, from its config alone.

    Raises:
        OSError, ValueError: it cannot be found or read.
    """
    from transformers import AutoConfig

    return shape_of(AutoConfig.from_pretrained(resolve(policy.model)))


def estimate(recipe: Recipe, shape: Shape, ranks: int, compute_bytes: int) -> dict[str, float]:
    """GB (2^30 bytes) of one rank by part, and the peaks of sampling and of training.

    Args:
        compute_bytes: of the type of the matrix products: 2 for bfloat16 (a GPU's default), 4 for float32.
    """
    policy: CausalLMConfig = recipe.policy  # type: ignore[assignment]
    s, c = shape, compute_bytes
    sharded = recipe.training.parallel == "fsdp" and ranks > 1
    held = (s.weights - s.blocks) + s.blocks / (ranks if sharded else 1)
    if policy.train == "lora":
        trained = policy.lora.rank * s.linear / (ranks if sharded else 1)
        weights, casts, sampler = c * held + 4 * trained, 0.0, c * s.weights
    else:
        last = min(policy.last_n_layers / s.layers, 1.0) * s.blocks / (ranks if sharded else 1)
        trained = held if policy.train == "all" else last
        weights = 4 * trained + c * (held - trained)
        casts = c * s.weights if c < 4 and not sharded else 0.0
        sampler = c * s.weights if casts or sharded else 0.0
    state = 4 * trained + 8 * trained
    layer = (6 * s.hidden + 2 * s.keys + 3 * s.mlp) * c
    kept = layer * s.layers if not policy.gradient_checkpointing else s.hidden * c * s.layers + layer
    activations = policy.token_budget * kept
    a = recipe.algorithm
    rows = -(-a.prompts_per_step // ranks) * a.group_size
    rows = min(rows, policy.decode_rows or rows)
    cache = rows * policy.max_new_tokens * 2 * s.keys * c * s.layers
    unsharded = c * s.weights if sharded else 0.0
    parts = {
        "weights": weights,
        "casts": casts,
        "sampler": sampler,
        "gradients": 4 * trained,
        "optimizer": 8 * trained,
        "activations": activations,
        "cache": cache,
        "peak_sampling": weights + 8 * trained + sampler + unsharded + cache,
        "peak_training": weights + casts + sampler + state + activations,
    }
    return {name: round(value / _GB, 3) for name, value in parts.items()}


def report(recipe: Recipe, ranks: int) -> dict[str, Any]:
    """The estimate for a recipe, as `--dry-run` prints it: for bfloat16 unless the recipe says float32."""
    policy: CausalLMConfig = recipe.policy  # type: ignore[assignment]
    try:
        shape = read_shape(policy)
    except (OSError, ValueError) as error:
        return {"memory": f"not estimated: {str(error).splitlines()[0]}"}
    c = 4 if policy.dtype == "float32" and recipe.training.fsdp_dtype is None else 2
    return {"memory_gb_per_rank": estimate(recipe, shape, ranks, c), "ranks": ranks, "weights": shape.weights}
