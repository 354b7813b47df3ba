"""Pointer selectors trained elsewhere, read where their network is the same as one of ours.

The public project that the mission's selectors come from names its parts `input_proj`, `cross_attn` (or
`cross_attn_layers.N`), `attn_norm(s)`, `query_proj`, `cand_proj`, `query_update_gate`, `decoder_gru`. Without biases in
its projections it is our network with biases of 0. What it has beyond that (step embeddings, topic prototypes, ...) has
no counterpart here and is refused by name: a half-read checkpoint would be another policy.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from anygrpo.errors import ConfigError
from anygrpo.models import weights
from anygrpo.selection.settings import SelectorConfig
from anygrpo.spoken import Text

_WRAPPERS = ("module.", "model.", "lever_lm.", "pointer_selector.", "selector.")
_FOREIGN = ("query_proj.weight", "cand_proj.weight")


def of_elsewhere(content: Any) -> dict[str, Tensor] | None:
    """The table in a file's content that holds a pointer selector under the other project's names; None: none does."""
    for table in weights.tables(content).values():
        if {_unwrapped(name) for name in table}.issuperset(_FOREIGN):
            return table
    return None


def translated(state: dict[str, Tensor], config: SelectorConfig, path: str) -> dict[str, Tensor]:
    """The other project's state under this library's names.

    Raises:
        ConfigError: parts without a counterpart here, or a network of other settings; they are named.
    """
    bare = {_unwrapped(name): x for name, x in state.items()}
    own = {_renamed(name): x for name, x in bare.items() if name != "temperature"}
    if unknown := sorted(name for name, new in ((n, _renamed(n)) for n in bare if n != "temperature") if new is None):
        raise ConfigError(
            Text(
                f"{path} is a pointer selector with parts that have no counterpart here: {', '.join(unknown[:4])}",
                f"{path} 是指针选择器，其中若干部分在此没有对应：{', '.join(unknown[:4])}",
            ),
            Text(
                "only networks of input_proj, cross attention, norms, projections, update gate or GRU cell can be read",
                "只能读取由 input_proj、交叉注意力、归一化、投影、更新门或 GRU 单元组成的网络",
            ),
        )
    out = {name: x for name, x in own.items() if name is not None}
    _complete(out, config)
    _check(out, bare, config, path)
    return out


def _unwrapped(name: str) -> str:
    while name.startswith(_WRAPPERS):
        name = name.split(".", 1)[1]
    return name


def _renamed(name: str) -> str | None:
    name = re.sub(r"^cross_attn\.", "cross_attn_layers.0.", name)
    name = re.sub(r"^attn_norm\.", "attn_norms.0.", name)
    for theirs, part in (("cross_attn_layers", "attention"), ("attn_norms", "norm")):
        if found := re.match(rf"{theirs}\.(\d+)\.(.+)", name):
            layer, rest = int(found[1]), found[2]
            return f"encoder.{part}.{rest}" if layer == 0 else f"encoder.deeper.{layer - 1}.{part}.{rest}"
    for theirs, ours in (
        ("input_proj.", "encoder.input."),
        ("query_proj.", "decoder.query."),
        ("cand_proj.", "decoder.item."),
        ("query_update_gate.", "decoder.gate."),
        ("decoder_gru.", "decoder.cell."),
    ):
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return None


def _complete(state: dict[str, Tensor], config: SelectorConfig) -> None:
    """Biases of 0 where the other network has none, and the unit matrix where it feeds features in as they are."""
    width = state["decoder.query.weight"].shape[0]
    if "encoder.input.weight" not in state and config.features == width:
        state["encoder.input.weight"] = torch.eye(width)
    for name in ("encoder.input", "decoder.query", "decoder.item"):
        if f"{name}.weight" in state:
            state.setdefault(f"{name}.bias", torch.zeros(state[f"{name}.weight"].shape[0]))


def _check(state: dict[str, Tensor], bare: dict[str, Tensor], config: SelectorConfig, path: str) -> None:
    """Raises: ConfigError: the policy's settings describe another network; what they must be is said."""
    width = state["decoder.query.weight"].shape[0]
    first = state.get("encoder.input.weight")
    layers = 1 + len({name.split(".")[2] for name in state if name.startswith("encoder.deeper.")})
    decoder = "gru" if "decoder.cell.weight_ih" in state else "gated" if "decoder.gate.weight" in state else "none"
    needs = {
        "features": width if first is None else first.shape[1],
        "width": width,
        "layers": layers,
        "decoder": decoder,
        "logits": "cosine",
        "hidden": 0,
        "set_layers": 0,
        "stop": False,
        "diversity": False,
    }
    if "temperature" in bare:
        needs["logit_temperature"] = round(float(bare["temperature"].flatten()[0]), 6)
    wrong = {name: value for name, value in needs.items() if getattr(config, name) != value}
    if wrong:
        now = ", ".join(f"{name} = {getattr(config, name)!r}" for name in wrong)
        raise ConfigError(
            Text(
                f"{path} is a pointer selector of another network than the policy's ({now})",
                f"{path} 是指针选择器，但网络与策略的不同（{now}）",
            ),
            "[policy] " + ", ".join(f"{name} = {value!r}" for name, value in wrong.items()),
        )
