"""Which weights of a language model are trained, and which of its layers are computed twice to save memory."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from torch import nn

from anygrpo.errors import ConfigError, DataError
from anygrpo.language.compute.bodies import body_of
from anygrpo.language.settings import CausalLMConfig
from anygrpo.spoken import Text


def unfreeze(model: nn.Module, config: CausalLMConfig, left_out: Collection[int] = ()) -> None:
    """All weights but those of the modules left out (by id), or the last blocks and what follows before the head."""
    if config.train == "all":
        for module in model.modules():
            for p in () if id(module) in left_out else module.parameters(recurse=False):
                p.requires_grad_(True)
        return
    blocks = blocks_of(model if config.vision is None else language_modules(model)[0])
    if config.last_n_layers > len(blocks):
        raise ConfigError(
            Text(
                f"last_n_layers = {config.last_n_layers}, but the model has {len(blocks)} layers",
                f"last_n_layers = {config.last_n_layers}，但模型有 {len(blocks)} 层",
            )
        )
    prefix, final = next((n, m) for n, m in model.named_modules() if m is blocks)[0], blocks[-config.last_n_layers :]
    for block in final:
        block.requires_grad_(True)
    parent = model.get_submodule(prefix.rpartition(".")[0])
    for name, child in parent.named_children():
        if re.search("norm|ln_f", name):
            child.requires_grad_(True)


def blocks_of(model: nn.Module) -> nn.ModuleList:
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) > 0]
    if not lists:
        raise ConfigError(
            Text(
                "train = last_n: no list of layers found in this model", "train = last_n：在这个模型中没有找到层的列表"
            ),
            Text('use train = "lora" or "all"', '请用 train = "lora" 或 "all"'),
        )
    return max(lists, key=lambda m: sum(p.numel() for p in m.parameters()))


def checkpoint_layers(model: nn.Module) -> None:
    """Gradient checkpointing on, with every random layer still off.

    The library checkpoints a block only where that block is in training mode, so the blocks alone are put there; what
    is inside them (dropout) stays in eval mode.
    """
    if not getattr(model, "supports_gradient_checkpointing", False):
        raise ConfigError(
            Text("this model does not support gradient checkpointing", "这个模型不支持梯度检查点"),
            Text("set gradient_checkpointing = false", "请设 gradient_checkpointing = false"),
        )
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable()  # type: ignore[operator]
    else:
        model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    for module in model.modules():
        if getattr(module, "gradient_checkpointing", False):
            module.training = True


def language_modules(model: Any) -> list[nn.Module]:
    """The parts of a vision-language model that know nothing of pictures: its text model and its output layer."""
    text = model.get_decoder() if hasattr(model, "get_decoder") else None
    text = getattr(body_of(model), "language_model", None) if text is None or text is body_of(model) else text
    return [part for part in (text, model.get_output_embeddings()) if part is not None]


def outside(model: nn.Module, part: str) -> set[int]:
    """ids of the modules that `part` ("language", "vision" or "both") leaves out.

    Raises:
        DataError: the model's text part cannot be told from the rest.
    """
    if part == "both":
        return set()
    inner = language_modules(model)
    if len(inner) < 2:
        raise DataError(
            Text(
                f"{type(model).__name__}: its text model cannot be told from the rest",
                f"{type(model).__name__}：无法把文本模型与其余部分分开",
            ),
            Text('set vision.train = "both"', '请设 vision.train = "both"'),
        )
    inside = {id(m) for module in inner for m in module.modules()}
    holders = {id(m) for m in model.modules() if any(x in inside for x in (id(c) for c in m.modules()))} - inside
    every = {id(m) for m in model.modules()} - holders
    return every - inside if part == "language" else inside
