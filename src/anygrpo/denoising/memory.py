"""Memory of a run that trains a denoiser, worked out from config files and headers alone; no weights are loaded.

    encoders     text encoders and VAE as they lie on the device, by the dtype (4 bytes a number for VAEs that overflow)
    weights      the denoiser: 2 bytes a number in bfloat16, else 4
    reference    the frozen copy, where all weights are trained
    trained      of A trained numbers: gradients 4 A, two moments 8 A; adapters themselves 4 A; the average 4 A
    trajectory   P x G samples of S + 1 latents, and S noises where the event reduction stores them, 4 bytes a number
    activations  what autograd keeps for the backward pass of one block: `rows_per_block` rows x `time_chunk` steps,
                 twice with two-pass guidance. Counted on the network itself, built on the meta device

Not counted: workspaces inside a layer and in sampling, the VAE's decoding, what the allocator keeps beyond it.
Attention is taken to keep no square of the sequence, as fused kernels do.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from anygrpo.denoising.denoiser import Condition, Reference, checkpoint_gradients
from anygrpo.denoising.gaussian import REDUCTIONS
from anygrpo.denoising.motion.mdm_policy import targeted
from anygrpo.denoising.motion.settings import MDMPolicyConfig, MotionPolicyConfig
from anygrpo.denoising.pipelines import adapter_class
from anygrpo.denoising.settings import DenoisingConfig, DiffusionPolicyConfig
from anygrpo.denoising.starting import start_for
from anygrpo.errors import AnygrpoError
from anygrpo.files import json_value
from anygrpo.recipe.recipe import Recipe

_GB = 2**30
_ROWS = 32
_CLIP_TOKENS = 77
Blank = Callable[[int], Condition]
"""n -> a condition of n rows on the meta device."""


def report(recipe: Recipe, ranks: int) -> dict[str, Any]:
    """The estimate for a recipe, as `--dry-run` prints it; why there is none, where the files are not there."""
    config: Any = recipe.policy
    if isinstance(config, MDMPolicyConfig):
        config = targeted(config)
        recipe = recipe.model_copy(update={"policy": config})
    try:
        network, shape, blank, beside = _network(config)
        parts = estimate(recipe, network, shape, blank, ranks) | {"encoders": beside}
    except (AnygrpoError, OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError) as error:
        return {"memory": f"not estimated: {str(error).splitlines()[0]}"}
    parts["peak"] = sum(parts.values())
    rounded = {name: round(value / _GB, 3) for name, value in parts.items()}
    return {"memory_gb_per_rank": rounded, "ranks": ranks, "weights": _numbers(network)}


def estimate(
    recipe: Recipe, network: nn.Module, shape: tuple[int, ...], blank: Blank, ranks: int = 1
) -> dict[str, float]:
    """Bytes by part (see the module), the encoders left out.

    Args:
        network: the denoiser on the meta device, without adapters; they are put in.
        shape: the latent's, E.
    """
    config: DenoisingConfig = recipe.policy
    width = 2 if config.dtype == "bfloat16" else 4
    weights = float(width * _numbers(network))
    Reference(network, config.lora, 0)
    trained = sum(p.numel() for p in network.parameters() if p.requires_grad)
    a = recipe.algorithm
    rows = -(-a.prompts_per_step // ranks) * a.typical_group
    latents = 1 + config.levels if config.loss != "steps" else _decisions(config) + 1
    noises = (_decisions(config) if config.loss == "steps" else 0) * REDUCTIONS[config.event_reduction].needs_noise
    size = float(torch.Size(shape).numel())
    return {
        "weights": weights,
        "reference": 0.0 if config.lora is not None else weights,
        "trained": float(trained * (12 + 4 * (config.lora is not None) + 4 * (config.average is not None))),
        "trajectory": 4 * rows * size * (latents + noises),
        "activations": float(activations(network, shape, blank, _block(recipe, rows), config)),
    }


def _decisions(config: DenoisingConfig) -> int:
    return config.window or config.steps - 1


def _block(recipe: Recipe, rows: int) -> int:
    """Rows of one pass: of a block, times the steps alive at once, twice under two-pass guidance."""
    config: Any = recipe.policy
    steps = _decisions(config)
    alive = config.levels if config.loss != "steps" else min(config.time_chunk or steps, steps)
    return min(recipe.training.rows_per_block or _ROWS, rows) * alive


def activations(network: nn.Module, shape: tuple[int, ...], blank: Blank, rows: int, config: DenoisingConfig) -> int:
    """Bytes that autograd keeps of one pass over `rows` rows of the network on the meta device; weights not counted."""
    passes = 1 if config.guidance == 1.0 or getattr(network, "guidance", None) is not None else 2
    n, dtype = rows * passes, torch.bfloat16 if config.dtype == "bfloat16" else torch.float32
    if config.gradient_checkpointing:
        checkpoint_gradients(network)
    own = {id(p) for p in network.parameters()}
    kept: dict[int, tuple[Tensor, int]] = {}

    def keep(x: Tensor) -> Tensor:
        base = x if x._base is None else x._base
        if id(base) not in own:
            kept[id(base)] = (base, base.numel() * base.element_size())  # held, so that no other gets its id
        return x

    network.to(dtype).eval()
    for p in network.parameters():
        if p.requires_grad:
            p.data = p.data.float() if config.lora is not None else p.data
    x = torch.empty(n, *shape, device="meta", dtype=dtype)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x), _Fused():
        network(x, torch.empty(n, device="meta"), **blank(n))
    return sum(size for _, size in kept.values())


class _Attention(torch.autograd.Function):
    """What a fused kernel keeps: queries, keys, values, output. Never run backwards."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = q.new_empty(*q.shape[:-1], v.shape[-1])
        ctx.save_for_backward(q, k, v, out)
        return out


class _Fused(TorchFunctionMode):
    """The meta device has no fused attention: it would count squares of the sequence."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is not scaled_dot_product_attention:
            return func(*args, **given)
        names = ("query", "key", "value")[len(args) :]
        return _Attention.apply(*args[:3], *(given[name] for name in names))


def _numbers(network: nn.Module) -> int:
    return sum(p.numel() for name, p in network.named_parameters() if ".lora_" not in name)


# -- which network ------------------------------------------------------------------------------------------------


def _network(config: Any) -> tuple[nn.Module, tuple[int, ...], Blank, float]:
    """(the denoiser on the meta device, E, conditions for it, bytes of what lies beside it)."""
    if isinstance(config, DiffusionPolicyConfig):
        if config.model is None:
            raise ValueError("the network is made by policy.function, which a dry run does not call")
        return _of_pipeline(config)
    if isinstance(config, MotionPolicyConfig):
        return _of_motion(config)
    return _of_mdm(config)


def _of_pipeline(config: DiffusionPolicyConfig) -> tuple[nn.Module, tuple[int, ...], Blank, float]:
    folder = Path(str(start_for(config).base))
    kind = adapter_class(str(folder))
    index = json_value((folder / "model_index.json").read_text(encoding="utf-8"))
    described = lambda name: json_value((folder / name / "config.json").read_text(encoding="utf-8"))  # noqa: E731
    own: Any = getattr(importlib.import_module(index[kind.component][0]), index[kind.component][1])
    with torch.device("meta"):
        model = own.from_config(described(kind.component))
    vae = SimpleNamespace(config=SimpleNamespace(**{"latent_channels": None, **described("vae")}))
    pipe: Any = SimpleNamespace(vae=vae, config=SimpleNamespace(), **{kind.component: model})
    pipe.vae_scale_factor_temporal = 2 ** sum(described("vae").get("temperal_downsample", ()))
    adapter = kind(pipe, config, torch.device("meta"))
    overflows, width = bool(described("vae").get("force_upcast")), 2 if config.dtype == "bfloat16" else 4
    beside = 0.0
    for part in (f.parent for f in folder.glob("*/config.json") if f.parent.name != kind.component):
        beside += _held(part) * (4 if overflows and part.name == "vae" else width)
    return adapter.denoiser(), adapter.shape(), lambda n: _blank(model, config, n), beside


def _held(part: Path) -> int:
    """Numbers in a folder's files, by their headers."""
    total = 0
    for path in part.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            total += sum(torch.Size(file.get_slice(name).get_shape()).numel() for name in file.keys())  # noqa: SIM118
    return total


def _blank(model: Any, config: DiffusionPolicyConfig, n: int) -> Condition:
    """A condition as the adapters make it, by what the model's own config says of its widths."""
    made, name = model.config, type(model).__name__
    empty = lambda *size: torch.empty(n, *size, device="meta")  # noqa: E731
    width = made.get("cross_attention_dim") or made.get("joint_attention_dim") or made.get("text_dim")
    width = width if isinstance(width, int) else width[0]
    tokens = {"SD3Transformer2DModel": _CLIP_TOKENS + (config.text_tokens or 256)}
    tokens |= dict.fromkeys(("FluxTransformer2DModel", "WanTransformer3DModel"), config.text_tokens or 512)
    out = {"encoder_hidden_states": empty(tokens.get(name, _CLIP_TOKENS), width)}
    if "pooled_projection_dim" in made:
        out["pooled_projections"] = empty(int(made["pooled_projection_dim"]))
    if made.get("addition_embed_type") == "text_time":
        pooled = int(made["projection_class_embeddings_input_dim"]) - 6 * int(made["addition_time_embed_dim"])
        out |= {"text_embeds": empty(pooled), "time_ids": empty(6)}
    return out


def _frames(size: int, **more: Tensor) -> Blank:
    def blank(n: int) -> Condition:
        row = {name: x.expand(n, *x.shape[1:]) for name, x in more.items()}
        flags = {"frames": torch.ones(n, size, dtype=torch.bool, device="meta"),
                 "dropped": torch.zeros(n, dtype=torch.bool, device="meta")}  # fmt: skip
        return row | flags

    return blank


def _of_motion(config: MotionPolicyConfig) -> tuple[nn.Module, tuple[int, ...], Blank, float]:
    from anygrpo.denoising.motion.model import MotionDenoiser
    from anygrpo.denoising.motion.text import BUCKETS, LONGEST, MINILM_WIDTH

    words = config.text == "words"
    with torch.device("meta"):
        network = MotionDenoiser(config, 0 if words else MINILM_WIDTH, BUCKETS if words else 1)
    size, kind = (LONGEST, torch.int64) if words else (MINILM_WIDTH, torch.float32)
    text = torch.zeros(1, config.captions, size, dtype=kind, device="meta")
    segment = torch.zeros(1, config.frames, dtype=torch.int64, device="meta")
    return network, (config.frames, config.features), _frames(config.frames, text=text, segment=segment), 0.0


def _of_mdm(config: Any) -> tuple[nn.Module, tuple[int, ...], Blank, float]:
    from anygrpo.denoising.motion import mdm

    if config.function is not None:
        raise ValueError("the network is made by policy.function, which a dry run does not call")
    arguments = mdm.read_arguments(Path(str(start_for(config).base)))
    with torch.device("meta"):
        network = mdm.from_arguments(arguments)
    text = torch.zeros(1, mdm.TEXT_WIDTH, device="meta")
    return network, (config.frames, arguments.features), _frames(config.frames, text=text), 0.0
