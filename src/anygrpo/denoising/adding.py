"""Weights on a base: a checkpoint's, an export's, a LoRA's for the network that is trained and for text encoders."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from anygrpo.core.saved import holds_weights, read_weights
from anygrpo.denoising.starting import ADAPTER, STRENGTH, Added, Start, files_of
from anygrpo.errors import DataError
from anygrpo.files import json_value
from anygrpo.models import weights
from anygrpo.models.adapted import with_adapter
from anygrpo.spoken import Text, say

log = logging.getLogger("anygrpo")
ENCODER = "text_encoder"
"""How the names of a pipeline's text encoders begin, and those of their adapters."""
_LORA = (".lora_A.weight", ".lora_B.weight")


def add(module: nn.Module, start: Start, pipe: Any = None, component: str | None = None) -> tuple[str, ...]:
    """Put what `start` adds on the network that was made from its base; the pipeline's other parts that it changed.

    Args:
        pipe, component: the pipeline, and where in it the network lies: its library reads LoRAs of other trainers, and
            those that adapt its text encoders too.

    Raises:
        DataError: nothing of it fits, or not all.
    """
    beside: list[str] = []
    for one in start.added:
        if (one.place / ADAPTER).is_file():
            with_adapter(module, one.place, str(start.base)).merge_and_unload()
        elif not (state := _adapters(one.place, component)):
            # a checkpoint holds what is trained, not buffers: they are the base's
            buffers = [name for name, _ in module.named_buffers()] if one.place.is_dir() else []
            weights.load(module, one.place, kept=buffers)
            beside += [] if pipe is None else _encoders_of_an_export(pipe, one.place)
        elif all(name.endswith(_LORA) for name in state):
            beside += [] if pipe is None else _merge_encoders(pipe, state, one)
            _merge(module, state, one)
        elif pipe is not None:
            beside += _by_the_library(pipe, module, one.place)
        else:
            raise DataError(
                Text(
                    f"{one.place} holds adapters under names that are not known: {sorted(state)[:2]}",
                    f"{one.place} 中适配器的名称无法识别：{sorted(state)[:2]}",
                )
            )
        log.info(
            say(
                "starting from %s: its weights are in %s, and that is the reference",
                "从 %s 开始：它的权重已并入 %s，这就是参考",
            ),
            one.place,
            start.base,
        )
    return tuple(dict.fromkeys(beside))


def _encoders_of_an_export(pipe: Any, file: Path) -> list[str]:
    """Text encoders beside the denoiser that the export's own list names: they are the trained policy's too. Others in
    the folder are not of this export."""
    root = file.parent.parent
    names = sorted({Path(f).parts[0] for f in files_of(root) if f.startswith(ENCODER)})
    for name in names:
        weights.fill(getattr(pipe, name), root / name)
    return names


def _adapters(place: Path, component: str | None) -> dict[str, Tensor]:
    """Tensors of adapters by the network's names; empty where the file holds whole weights."""
    if place.suffix != ".safetensors" if place.is_file() else not holds_weights(place):
        return {}
    state = read_weights(place)
    if not isinstance(state, Mapping) or not any("lora" in name or "lokr" in name for name in state):
        return {}
    prefix = f"{component}."
    return {name.removeprefix(prefix).replace(".default.", "."): x for name, x in state.items()}


def _merge_encoders(pipe: Any, state: dict[str, Tensor], one: Added) -> list[str]:
    """Merge the adapters of text encoders, and take them out of `state`; the encoders' names. Their library would add
    them under one version of PEFT alone."""
    named = {name.partition(".")[0] for name in state if name.startswith(ENCODER)}
    for encoder in sorted(named):
        part = {n.partition(".")[2]: state.pop(n) for n in list(state) if n.startswith(f"{encoder}.")}
        module = getattr(pipe, encoder, None)
        if module is None:
            raise DataError(
                Text(
                    f"{one.place} adapts {encoder}, which this pipeline has not",
                    f"{one.place} 调整了此管线没有的 {encoder}",
                ),
                Text("another base, or another file", "请换一个基座模型，或换一个文件"),
            )
        _merge(module, part, one, encoder)
    return sorted(named)


@torch.no_grad()
def _merge(module: nn.Module, state: dict[str, Tensor], one: Added, component: str = "") -> None:
    """weight += strength B A, of every layer that the file names.

    Args:
        component: under whose name the file's header says alpha; "": of the network that is trained.
    """
    layers = sorted({name.removesuffix(end) for name in state for end in _LORA if name.endswith(end)})
    known = dict(module.named_modules())
    if not any(name in known for name in layers):  # transformers 5 leaves this level of CLIP's out, files have it
        known |= {f"text_model.{name}": layer for name, layer in known.items()}
    unknown = [name for name in layers if not isinstance(known.get(name), nn.Linear)]
    if unknown:
        raise DataError(
            Text(
                f"{one.place}: {len(unknown)} of {len(layers)} layers are not in this network: {unknown[:3]}",
                f"{one.place}：{len(layers)} 层中有 {len(unknown)} 层不在这个网络中：{unknown[:3]}",
            ),
            Text("another base, or another file", "请换一个基座模型，或换一个文件"),
        )
    alpha = None if one.strength is not None else _alpha(one.place, component)
    for name in layers:
        layer: Any = known[name]
        a, b = (state.get(name + end) for end in _LORA)
        if a is None or b is None or (b.shape[0], a.shape[1]) != tuple(layer.weight.shape):
            raise DataError(
                Text(
                    f"{one.place}: the adapter of {name} does not fit {tuple(layer.weight.shape)}",
                    f"{one.place}：{name} 的适配器与 {tuple(layer.weight.shape)} 不符",
                )
            )
        scale = one.strength or (1.0 if alpha is None else alpha / a.shape[0])
        change = scale * (b.float() @ a.float())
        layer.weight.copy_((layer.weight.float() + change.to(layer.weight.device)).to(layer.weight))


def _alpha(file: Path, component: str) -> float | None:
    """Of a file's header, for a text encoder or for what is no text encoder; None where it says none: alpha is the
    rank."""
    try:
        with safe_open(file, "pt") as opened:
            said = json_value((opened.metadata() or {}).get(STRENGTH, "{}"))
        of = lambda key: key.partition(".")[0] if key.startswith(ENCODER) else ""  # noqa: E731
        found = [float(v) for k, v in said.items() if k.rpartition(".")[2] == "lora_alpha" and of(k) == component]
        return next(iter(found), None)
    except (OSError, ValueError, TypeError, SafetensorError, AttributeError):
        return None


def _by_the_library(pipe: Any, module: nn.Module, place: Path) -> list[str]:
    """The adapters of a file, merged wherever its library puts them: text encoders among it, whose names are given."""
    from peft.tuners.lora import LoraLayer

    try:
        pipe.load_lora_weights(str(place.parent), weight_name=place.name, local_files_only=True)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise DataError(
            Text(f"{place}: diffusers does not load it: {error}", f"{place}：diffusers 无法加载：{error}"),
            Text("see its base", "请检查它的基座模型"),
        ) from None
    modules = {name: part for name, part in pipe.components.items() if isinstance(part, nn.Module)}
    adapted = [n for n, part in modules.items() if any(isinstance(layer, LoraLayer) for layer in part.modules())]
    if not any(modules[name] is module for name in adapted):
        raise DataError(
            Text(f"{place}: none of its adapters is for this network", f"{place}：没有一个适配器属于这个网络"),
            Text("another base, or another file", "请换一个基座模型，或换一个文件"),
        )
    for name in adapted:
        _moved(place, name, modules[name])
    pipe.fuse_lora(components=adapted)
    pipe.unload_lora_weights()
    return [name for name in adapted if modules[name] is not module]


def _moved(place: Path, name: str, module: nn.Module) -> None:
    """Raises: DataError where the library made adapters and found no numbers for them: it only warns of that."""
    if not any(bool(p.any()) for n, p in module.named_parameters() if ".lora_B." in n):
        raise DataError(
            Text(f"{place}: what it holds is in no layer of {name}", f"{place}：其中的内容不属于 {name} 的任何一层"),
            Text("another base, or another file", "请换一个基座模型，或换一个文件"),
        )
