"""Memory of one rank that trains a causal language model, worked out from its config; no weights are loaded.

What is counted, in bytes (W: weights, A: trained ones, c: bytes of the computing type, H: hidden size, Q and K: widths
of queries and keys, F: width of the MLP):

    weights     adapters: W c + 4 A; else 4 A + c (W - A)
    reference   a frozen copy, where weights themselves are trained and the KL term is on: c A
    sampler     copies to generate with: merged weights of adapted layers
    casts       c A, where trained weights are cast for the passes (the sampler shares them)
    optimizer   8 A (two moments in float32; 2 A in 8 bits); gradients 4 A
    cache       keys and values, 2 K c a layer and token: of the prompts decoded at once (each once) and of their rows
                at their longest. On a GPU buffers stay, and when rows have ended the others get smaller ones beside
    activations what the backward pass of one block of tokens reads, a layer: inputs of norms, attention and products,
                c (4 H + 2 Q + 2 K + f F), f = 4 under adapters (3 on a GPU), else 2 (0 on a GPU). Attention holds no
                square. With gradient checkpointing c H, and one layer whole
    workspace   training: logits of 512 tokens (2,048 on a GPU) four times over (twice by a GPU's kernels), or the
                gradients inside one layer, whichever is more; with a trained head its gradient in float32. Sampling:
                logits of all rows three times over, a layer of the prompts' pass, or the logits of 512 tokens where
                answers are scored again. Optimizer: roots of the second moments (shards on a GPU), weights before a
                measured step. On a GPU 0.14 GB for kernels in all three

With parallel = "fsdp" blocks' weights, gradients and moments are divided by the number of ranks. Not counted: what the
allocator keeps beyond what is asked of it, and vLLM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from anygrpo.errors import AnygrpoError, DataError
from anygrpo.language.compute.head import BLOCK, GPU_BLOCK
from anygrpo.language.dials import TOKENS
from anygrpo.language.settings import CausalLMConfig, LoraConfig
from anygrpo.language.unfreezing import language_modules
from anygrpo.models.loading import base_of, kind_of_model
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.recipe import Recipe, number

PROMPT_TOKENS = 512
"""Length of prompts assumed where nothing else is said: a recipe does not tell it."""

_GB = 2**30

_KERNELS = 0.14 * _GB
"""What a GPU's libraries hold through the allocator, whatever the model: measured on an H200, torch 2.11."""


@dataclass(frozen=True)
class Shape:
    """A model's sizes.

    Attributes:
        weights, blocks: all of them; those in blocks.
        adapted: weights of the linear layers that adapters attach to.
        inputs, outputs: summed widths of those layers, a block. modules: how many there are in a block.
        layers, hidden, queries, keys, heads, mlp, vocabulary: of the model.
    """

    weights: int
    blocks: int
    adapted: int
    inputs: int
    outputs: int
    modules: int
    layers: int
    hidden: int
    queries: int
    keys: int
    heads: int
    mlp: int
    vocabulary: int


def shape_of(config: Any, lora: LoraConfig | None = None, vision: bool = False) -> Shape:
    """Count a `transformers` config's model on the meta device."""
    from torch import nn

    with torch.device("meta"):
        model = kind_of_model(vision).from_config(config)
    reads = language_modules(model)[0] if vision else model
    lists = [m for m in reads.modules() if isinstance(m, nn.ModuleList) and len(m)]
    blocks = max(lists, key=lambda m: sum(p.numel() for p in m.parameters()))
    targets = "all-linear" if lora is None else lora.targets
    named = [(n.rsplit(".", 1)[-1], m) for n, m in blocks.named_modules() if isinstance(m, nn.Linear)]
    linear = [m for n, m in named if targets == "all-linear" or n in targets]
    text = config.get_text_config()
    heads = text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // heads
    return Shape(
        weights=sum(p.numel() for p in model.parameters()),
        blocks=sum(p.numel() for p in blocks.parameters()),
        adapted=sum(m.weight.numel() for m in linear),
        inputs=sum(m.in_features for m in linear) // len(blocks),
        outputs=sum(m.out_features for m in linear) // len(blocks),
        modules=len(linear) // len(blocks),
        layers=len(blocks),
        hidden=text.hidden_size,
        queries=width * heads,
        keys=width * (getattr(text, "num_key_value_heads", None) or heads),
        heads=heads,
        mlp=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        vocabulary=text.vocab_size,
    )


def read_shape(policy: CausalLMConfig) -> Shape:
    """The shape of a recipe's model, from its config alone.

    Raises:
        OSError, ValueError: it cannot be found or read.
    """
    from transformers import AutoConfig

    try:
        return shape_of(AutoConfig.from_pretrained(base_of(policy.model)), policy.lora, policy.vision is not None)
    except (AnygrpoError, MemoryError, OSError, ValueError):
        raise
    except Exception as error:  # anybody's config.json: a library may fail at it in any way
        raise ValueError(f"{policy.model}: {type(error).__name__}: {error}") from None


@dataclass(frozen=True)
class Plan:
    """A recipe on one of `ranks` ranks, whose matrix products take `c` bytes a number, on a GPU or not."""

    recipe: Recipe
    shape: Shape
    ranks: int
    c: int
    gpu: bool
    prompt_tokens: int

    @property
    def policy(self) -> CausalLMConfig:
        return self.recipe.policy

    @property
    def algorithm(self) -> AlgorithmConfig:
        return self.recipe.algorithm

    @property
    def lora(self) -> bool:
        return self.policy.train == "lora"

    @property
    def sharded(self) -> bool:
        return self.recipe.training.parallel == "fsdp" and self.ranks > 1

    @property
    def trained(self) -> float:
        """Trained weights held here."""
        s, cut = self.shape, self.ranks if self.sharded else 1
        if self.lora:
            return self.policy.lora.rank * (s.inputs + s.outputs) * s.layers / cut
        if self.policy.train == "all":
            return (s.weights - s.blocks) + s.blocks / cut
        return min(self.policy.last_n_layers / s.layers, 1.0) * s.blocks / cut

    @property
    def rows(self) -> int:
        """Rows decoded at once: whole groups."""
        a = self.algorithm
        groups = -(-a.prompts_per_step // self.ranks)
        if self.policy.decode_rows:
            groups = min(groups, max(1, self.policy.decode_rows // a.typical_group))
        return groups * a.typical_group

    @property
    def tokens(self) -> int:
        """Tokens of one training block; where the run itself chooses, of the smallest that it may choose."""
        a, group, budget = self.algorithm, self.algorithm.typical_group, self.policy.token_budget
        rows = -(-a.prompts_per_step // self.ranks) * group
        rows = min(self.recipe.training.rows_per_block or (rows if self.gpu else 32), rows)
        most = rows * self.policy.max_new_tokens + -(-rows // group) * self.prompt_tokens
        return min(TOKENS if budget == "auto" else budget, most)


def _weights(p: Plan) -> dict[str, float]:
    s, a, c = p.shape, p.trained, p.c
    held = (s.weights - s.blocks) + s.blocks / (p.ranks if p.sharded else 1)
    mixed = not p.lora and c < 4 and not p.sharded
    merged = c * s.adapted if p.lora else 0.0
    return {
        "weights": c * held + 4 * a if p.lora else 4 * a + c * (held - a),
        "reference": (c if mixed else 4) * a if not p.lora and number(p.algorithm.beta) > 0 else 0.0,
        "sampler": c * s.weights if p.sharded else merged,
        "casts": c * a if mixed or (p.lora and c < 4 and not p.sharded) else 0.0,
        "gradients": 4 * a,
        "optimizer": p.recipe.optimizer.moment_bytes * a,
    }


def _cache(p: Plan) -> float:
    a, policy, token = p.algorithm, p.policy, 2 * p.shape.keys * p.c * p.shape.layers
    uneven = p.gpu and policy.min_new_tokens < policy.max_new_tokens
    own = p.rows * policy.max_new_tokens * (2 if uneven else 1)
    return token * (p.rows // a.typical_group * p.prompt_tokens + own)


def _activations(p: Plan) -> float:
    s, c, blocks = p.shape, p.c, p.shape.layers
    own = 2 if p.lora or not p.gpu else 0
    layer = c * (2 * s.hidden + 2 * s.queries + 2 * s.keys + own * s.mlp) + 4 * s.heads
    layer += c * (2 * s.hidden + (s.mlp if p.lora else 0))
    layer += c * p.policy.lora.rank * s.modules if p.lora else 0
    ends = 3 * c * s.hidden
    kept = layer * blocks if not p.policy.gradient_checkpointing else c * s.hidden * blocks + layer
    return p.tokens * (kept + ends)


def _logits(p: Plan) -> float:
    return (8 if p.gpu and p.c < 4 else 16) * min(GPU_BLOCK if p.gpu else BLOCK, p.tokens) * p.shape.vocabulary


def _training_space(p: Plan) -> float:
    s = p.shape
    head = _logits(p)
    if p.policy.train == "all":
        head += (4 + p.c) * s.vocabulary * s.hidden
    inside = p.tokens * p.c * max(6 * s.mlp, 8 * s.queries)
    return max(head, inside)


def _sampling_space(p: Plan) -> float:
    s, policy = p.shape, p.policy
    copies = 3 + (policy.min_new_tokens > 0) + (8 if number(policy.top_p) < 1 else 0)
    prompts = p.rows // p.algorithm.typical_group * p.prompt_tokens
    one_layer = p.c * (4 * s.hidden + 2 * s.queries + 2 * s.keys + 3 * s.mlp) + 2 * s.keys * p.c * s.layers
    again = _logits(p)
    return max(4 * copies * p.rows * s.vocabulary, prompts * one_layer, again)


def _stepping_space(p: Plan) -> float:
    measured = p.recipe.training.gradient_norms_every > 0
    return (4 * p.trained if p.gpu and p.sharded else 0.0) + (4 * p.trained if measured else 0.0)


def estimate(
    recipe: Recipe,
    shape: Shape,
    ranks: int,
    compute_bytes: int,
    gpu: bool = True,
    prompt_tokens: int = PROMPT_TOKENS,
) -> dict[str, float]:
    """GB (2^30 bytes) of one rank by part, the peaks of sampling, training and the optimizer's step, and their largest.

    Args:
        compute_bytes: of the type of the matrix products: 2 for bfloat16 (a GPU's default), 4 for float32.
        gpu: with a GPU's kernels and kept buffers.
        prompt_tokens: of the longest prompts.
    """
    p = Plan(recipe, shape, ranks, compute_bytes, gpu, prompt_tokens)
    parts = _weights(p) | {"cache": _cache(p), "activations": _activations(p)}
    gathered = compute_bytes * shape.weights if p.sharded else 0.0
    kept = sum(parts[name] for name in ("weights", "reference", "sampler", "casts", "optimizer"))
    kept += _KERNELS if gpu else 0.0
    sampling = kept + parts["cache"] + gathered + _sampling_space(p)
    kept += parts["cache"] if gpu else 0.0
    kept += parts["gradients"] + (2 * gathered / shape.layers)
    peaks = {
        "peak_sampling": sampling,
        "peak_training": kept + parts["activations"] + _training_space(p),
        "peak_stepping": kept + _stepping_space(p),
    }
    peaks["peak"] = max(peaks.values())
    return {name: round(value / _GB, 3) for name, value in (parts | peaks).items()}


def report(recipe: Recipe, ranks: int) -> dict[str, Any]:
    """The estimate for a recipe, as `--dry-run` prints it: for bfloat16 on a GPU unless the recipe says otherwise."""
    policy: CausalLMConfig = recipe.policy
    try:
        shape = read_shape(policy)
    except (OSError, ValueError, DataError) as error:
        return {"memory": f"not estimated: {str(error).splitlines()[0]}"}
    gpu = policy.device != "cpu"
    wide = policy.dtype == "float32" or (policy.dtype == "auto" and not gpu)
    parts = estimate(recipe, shape, ranks, 4 if wide and recipe.training.fsdp_dtype is None else 2, gpu)
    said = {"ranks": ranks, "weights": shape.weights, "prompt_tokens_assumed": PROMPT_TOKENS}
    return {"memory_gb_per_rank": parts} | said
