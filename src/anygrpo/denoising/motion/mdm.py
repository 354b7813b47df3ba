"""MDM's network (arXiv 2209.14916, arch trans_enc) under its own tensor names, and its checkpoints.

The layers are written out, so that an adapter on `out_proj` is really computed: torch's MultiheadAttention reads that
layer's weight past any adapter, which then trains nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from anygrpo.errors import ConfigError, DataError
from anygrpo.files import json_value
from anygrpo.models.unpickled import read_torch
from anygrpo.spoken import Text

DEFAULTS: dict[str, Any] = {
    "arch": "trans_enc", "text_encoder_type": "clip", "layers": 8, "latent_dim": 512, "cond_mask_prob": 0.1,
    "mask_frames": False, "noise_schedule": "cosine", "diffusion_steps": 1000, "dataset": "humanml", "pred_len": 0,
    "context_len": 0, "unconstrained": False, "pos_embed_max_len": 5000, "emb_policy": "add", "sigma_small": True,
}  # fmt: skip
"""What a key means that an args.json does not have."""
HEADS, FEEDFORWARD, DROPOUT, TEXT_WIDTH = 4, 1024, 0.1, 512
"""Sizes that args.json does not say."""
KNOWN = {
    "arch": ("trans_enc",), "noise_schedule": ("cosine",), "unconstrained": (False,), "pred_len": (0,),
    "context_len": (0,), "emb_policy": ("add",), "sigma_small": (True,), "text_encoder_type": ("clip",),
    "dataset": ("humanml", "kit"),
}  # fmt: skip
"""Values that are read here; any other is refused by name."""
_NOT_SAVED = ("clip_model.", "sequence_pos_encoder.pe", "embed_timestep.sequence_pos_encoder.pe")


@dataclass(frozen=True)
class Arguments:
    """args.json, with the defaults for what it lacks.

    Attributes:
        given: the file as it was, for the way back.
    """

    given: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.given.get(name, DEFAULTS[name])

    @property
    def features(self) -> int:
        return 251 if self["dataset"] == "kit" else 263


def read_arguments(model: Path) -> Arguments:
    """args.json beside a checkpoint.

    Raises:
        DataError: it is not there, or broken.
        ConfigError: a variant of MDM that is not read here; the key is named.
    """
    file = model.parent / "args.json"
    try:
        arguments = Arguments(dict(json_value(file.read_text())))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            Text(f"{file}: {error}", f"{file}：{error}"),
            Text(
                "MDM keeps args.json beside model*.pt: copy it there",
                "MDM 把 args.json 放在 model*.pt 旁边：请复制到那里",
            ),
        ) from error
    for name, known in KNOWN.items():
        if arguments[name] not in known:
            raise ConfigError(
                Text(
                    f"{file}: {name} = {arguments[name]!r} is not read here",
                    f"{file}：此处不读 {name} = {arguments[name]!r}",
                ),
                Text(f"{name} = {' or '.join(map(str, known))}", f"{name} = {' 或 '.join(map(str, known))}"),
            )
    return arguments


class Attention(nn.Module):
    """Self-attention under the names of nn.MultiheadAttention."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.in_proj_weight)

    def forward(self, x: Tensor, attend: Tensor | None) -> Tensor:
        joined = linear(x, self.in_proj_weight, self.in_proj_bias)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in joined.chunk(3, -1))
        return self.out_proj(scaled_dot_product_attention(q, k, v, attn_mask=attend).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """nn.TransformerEncoderLayer with norms after (post-norm) and gelu."""

    def __init__(self, width: int):
        super().__init__()
        self.self_attn = Attention(width, HEADS)
        self.linear1, self.linear2 = nn.Linear(width, FEEDFORWARD), nn.Linear(FEEDFORWARD, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor, attend: Tensor | None) -> Tensor:
        x = self.norm1(x + self.drop(self.self_attn(x, attend)))
        return self.norm2(x + self.drop(self.linear2(self.drop(gelu(self.linear1(x))))))


def position_table(width: int, longest: int) -> Tensor:
    """[longest, 1, width]: sines at even places, cosines at odd ones."""
    position = torch.arange(longest)[:, None].float()
    rate = torch.exp(torch.arange(0, width, 2).float() * (-torch.tensor(10_000.0).log() / width))
    table = torch.zeros(longest, width)
    table[:, 0::2], table[:, 1::2] = torch.sin(position * rate), torch.cos(position * rate)
    return table[:, None]


def _tree(**modules: nn.Module) -> nn.Module:
    """A module that only holds others, for their names."""
    holder = nn.Module()
    for name, module in modules.items():
        holder.add_module(name, module)
    return holder


class MDM(nn.Module):
    """`denoiser(x [n, L, F], timestep [n], text, frames, dropped) -> clean motion [n, L, F]`.

    Args:
        width, layers: latent_dim and layers of args.json.
        mask_frames: padding is not attended to. False, as most checkpoints were trained: it is.
        condition_dropout: share of captions left out in training mode.
    """

    def __init__(
        self, features: int = 263, width: int = 512, layers: int = 8, mask_frames: bool = False,
        condition_dropout: float = 0.1, longest: int = 5000, text_width: int = TEXT_WIDTH,
    ):  # fmt: skip
        super().__init__()
        self.mask_frames, self.condition_dropout, self.checkpointing = mask_frames, condition_dropout, False
        self.register_buffer("table", position_table(width, longest), persistent=False)
        self.embed_timestep = _tree(
            time_embed=nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        )
        self.input_process = _tree(poseEmbedding=nn.Linear(features, width))
        self.seqTransEncoder = _tree(layers=nn.ModuleList(Layer(width) for _ in range(layers)))
        self.embed_text = nn.Linear(text_width, width)
        self.output_process = _tree(poseFinal=nn.Linear(width, features))
        self.drop = nn.Dropout(DROPOUT)

    def enable_gradient_checkpointing(self) -> None:
        self.checkpointing = True

    def forward(self, x: Tensor, timestep: Tensor, text: Tensor, frames: Tensor, dropped: Tensor) -> Tensor:
        """Args:
        text: [n, text_width] of the frozen encoder; set to zero (before `embed_text`, whose bias stays) where dropped.
        frames: [n, L] bool: real frames. dropped: [n] bool.
        """
        table: Any = self.table
        x = x.to(self.embed_text.weight.dtype)
        if self.training and self.condition_dropout > 0:
            dropped = dropped | (torch.rand(dropped.shape, device=dropped.device) < self.condition_dropout)
        said = torch.where(dropped[:, None], 0.0, text.to(x.dtype))
        level = self.embed_timestep.time_embed(table[timestep.long(), 0].to(x.dtype))  # type: ignore[operator]
        first = (level + self.embed_text(said))[:, None]
        h = torch.cat([first, self.input_process.poseEmbedding(x)], 1)  # type: ignore[operator]
        h = self.drop(h + table[: h.shape[1], 0].to(x.dtype))
        attend = torch.cat([torch.ones_like(frames[:, :1]), frames], 1)[:, None, None] if self.mask_frames else None
        for layer in self.seqTransEncoder.layers:  # type: ignore[union-attr]
            again = self.checkpointing and torch.is_grad_enabled()
            h = checkpoint(layer, h, attend, use_reentrant=False) if again else layer(h, attend)
        return self.output_process.poseFinal(h[:, 1:])  # type: ignore[operator]


def from_arguments(arguments: Arguments) -> MDM:
    """The network that an args.json describes, weights not loaded."""
    return MDM(
        arguments.features, int(arguments["latent_dim"]), int(arguments["layers"]), bool(arguments["mask_frames"]),
        float(arguments["cond_mask_prob"]), int(arguments["pos_embed_max_len"]),
    )  # fmt: skip


def load(model: Path, network: MDM, arguments: Arguments, prefer_average: bool = True) -> str:
    """Load model*.pt: flat, {"model", "model_avg"} (EMA), {"model", "optimizer", ...}, with or without adapters of a
    fork, which are merged. Returns what was read, in words.

    Raises:
        DataError: no such file.
        ConfigError: tensors are missing, unexpected, or of another shape; all are named.
    """
    if not model.is_file():
        raise DataError(
            Text(f"no checkpoint {model}", f"没有检查点 {model}"),
            Text("a file model*.pt of MDM", "应为 MDM 的 model*.pt 文件"),
        )
    state = read_torch(model)
    said = "weights"
    if prefer_average and isinstance(state.get("model_avg"), Mapping):
        state, said = state["model_avg"], "averaged weights (model_avg)"
    elif isinstance(state.get("model"), Mapping):
        state = state["model"]
    state = {
        k.removeprefix("module."): v for k, v in state.items() if not k.removeprefix("module.").startswith(_NOT_SAVED)
    }
    state, merged = merge_adapters(state, arguments)
    own = network.state_dict()
    missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    wrong = [k for k in own.keys() & state.keys() if own[k].shape != state[k].shape]
    if missing or unexpected or wrong:
        shapes = [f"{k} {tuple(state[k].shape)}, here {tuple(own[k].shape)}" for k in sorted(wrong)[:3]]
        raise ConfigError(
            Text(
                f"{model} does not fit its args.json: missing {missing[:3]}, unexpected "
                f"{unexpected[:3]}, shapes {shapes}",
                f"{model} 与它的 args.json 不符：缺少 {missing[:3]}，多出 {unexpected[:3]}，形状 {shapes}",
            ),
            Text("args.json of the same training run", "请用同一次训练的 args.json"),
        )
    network.load_state_dict(state)
    return f"{model}: {said}" + (f", {merged} adapters merged" if merged else "")


_ADAPTER = re.compile(r"^(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?(?:\.weight)?$")
_BASE = re.compile(r"^(?:base_model\.model\.)?(.+?)\.(?:base_layer|original_layer|linear)\.(weight|bias)$")


def merge_adapters(state: Mapping[str, Tensor], arguments: Arguments) -> tuple[dict[str, Tensor], int]:
    """(plain weights, number of adapters): W + alpha / rank B A, for keys X.lora_A and X.lora_B.

    Raises:
        ConfigError: adapters whose alpha args.json does not say.
    """
    plain: dict[str, Tensor] = {}
    low: dict[str, dict[str, Tensor]] = {}
    for key, value in state.items():
        if found := _ADAPTER.match(key):
            low.setdefault(found[1], {})[found[2]] = value
        elif found := _BASE.match(key):
            plain[f"{found[1]}.{found[2]}"] = value
        else:
            plain[key.removeprefix("base_model.model.")] = value
    if not low:
        return plain, 0
    alpha = arguments.given.get("lora_alpha")
    if alpha is None:
        raise ConfigError(
            Text(
                f"{len(low)} LoRA adapters, and args.json has no lora_alpha: their strength is not known",
                f"有 {len(low)} 个 LoRA 适配器，而 args.json 没有 lora_alpha：不知道它们的强度",
            ),
            Text(
                'add "lora_alpha" to args.json (the fork trains with 16)',
                '请在 args.json 中加上 "lora_alpha"（该分支以 16 训练）',
            ),
        )
    for name, pair in low.items():
        a, b = pair["A"], pair["B"]
        plain[f"{name}.weight"] = plain[f"{name}.weight"] + float(alpha) / a.shape[0] * (b @ a)
    return plain, len(low)
