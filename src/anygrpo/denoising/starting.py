"""What `policy.model` may stand for: a base (a pipeline, MDM's file), or one with trained weights added to it.

| name | becomes |
| --- | --- |
| a pipeline's folder, a file of MDM or its folder | itself |
| a name of the Hub, owner/name[@revision] | the folder of its files, which may be any of these |
| a run's folder (best, else newest checkpoint), a checkpoint, an export | its base, with its weights |
| a LoRA for a pipeline (.safetensors, or its folder), `base_model` in the README.md beside | that base, with the LoRA |

Adapters are merged into the base: that is then where training starts, and what its reference is.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from anygrpo.core.saved import holds_weights, read_weights
from anygrpo.errors import DataError
from anygrpo.files import read_toml
from anygrpo.models import weights
from anygrpo.models.hub import located
from anygrpo.spoken import Text

log = logging.getLogger("anygrpo")
LORA_FILE = "pytorch_lora_weights.safetensors"
STRENGTH = "lora_adapter_metadata"
"""Where in the file's header diffusers looks for rank and alpha; without it alpha = rank, another strength."""
_RECIPE, _EXPORT = "recipe.toml", "export.json"
_LORA = (".lora_A.weight", ".lora_B.weight")


@dataclass(frozen=True)
class Added:
    """Weights that are put on a base. `strength`: alpha over rank of adapters, where a run's recipe says it."""

    place: Path
    strength: float | None = None


@dataclass(frozen=True)
class Start:
    """`base`: what the kind of policy loads; None: a network of the section's own sizes. `added`: in this order."""

    base: str | None
    added: tuple[Added, ...] = ()


def start_of(name: str | None, kind: str) -> Start:
    """What `model = name` of a policy of this kind stands for.

    Raises:
        DataError: a run of another kind, one without a checkpoint, or a LoRA that does not name its base.
    """
    if name is None:
        return Start(None)
    path = located(name)
    name = str(path)
    if (path / "model_index.json").is_file():
        return Start(name)
    for run in (path, path.parent.parent):
        if path.is_dir() and (run / "config.toml").is_file():
            return _of_recipe(run / "config.toml", _checkpoint(path), kind, of_run=True)
    if (path / _RECIPE).is_file() and (path / _EXPORT).is_file():
        return _of_recipe(path / _RECIPE, _exported(path), kind, of_run=False)
    if kind == "diffusion" and (path.suffix == ".safetensors" or (path / LORA_FILE).is_file()):
        return Start(_named_base(path), (Added(path / LORA_FILE if path.is_dir() else path),))
    if kind == "motion" and not path.exists():
        raise DataError(
            Text(f"no weights at {path}", f"{path} 处没有权重"),
            Text(
                "train them first: anygrpo train recipes/motion/supervised.toml",
                "请先训练：anygrpo train recipes/motion/supervised.toml",
            ),
        )
    if kind == "mdm" and path.is_dir():
        files = sorted(path.glob("*.pt"))
        name = str(files[0]) if len(files) == 1 else name
    return Start(name) if kind != "motion" else Start(None, (Added(path),))


def _of_recipe(file: Path, place: Path, kind: str, of_run: bool) -> Start:
    policy = read_toml(file).get("policy", {})
    if policy.get("kind") != kind:
        raise DataError(
            Text(
                f"{file.parent} is of a policy of kind {policy.get('kind')!r}, this one is {kind!r}",
                f"{file.parent} 是 kind 为 {policy.get('kind')!r} 的策略，而这个是 {kind!r}",
            )
        )
    under = start_of(policy.get("model"), kind)
    lora = policy.get("lora")
    if lora is None or not of_run:
        whole = kind == "mdm" and not of_run  # an export of MDM's holds all of its weights, args.json beside
        return Start(str(place)) if whole else Start(under.base, (*(() if lora is None else under.added), Added(place)))
    strength = float(lora.get("alpha", 64.0)) / int(lora.get("rank", 32))
    return Start(under.base, (*under.added, Added(place, strength)))


def _checkpoint(path: Path) -> Path:
    places = [path, path / "checkpoints" / "best", *sorted(path.glob("checkpoints/step_*"), reverse=True)]
    for place in places:
        if holds_weights(place):
            return place
    raise DataError(
        Text(f"{path} holds no checkpoint", f"{path} 中没有检查点"),
        Text("let the run write one, or name another", "请让运行写出一个，或指定另一个"),
    )


def _exported(folder: Path) -> Path:
    try:
        files = json.loads((folder / _EXPORT).read_text(encoding="utf-8"))["files"]
        found = next(f for f in files if f.endswith((".safetensors", ".pt", ".index.json")))
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        raise DataError(
            Text(f"{folder / _EXPORT} names no file of weights", f"{folder / _EXPORT} 没有写明权重文件"),
            Text("export the run again", "请重新导出那次运行"),
        ) from None
    inside = not Path(found).is_absolute() and ".." not in Path(found).parts
    if not inside or not (folder / found).is_file():
        raise DataError(
            Text(
                f"{folder / _EXPORT} names {found!r}, which is not there",
                f"{folder / _EXPORT} 提到 {found!r}，但没有这个文件",
            ),
            Text("export the run again", "请重新导出那次运行"),
        )
    return folder / found


def _named_base(path: Path) -> str:
    """`base_model` in the head of the README.md beside a LoRA."""
    card = (path if path.is_dir() else path.parent) / "README.md"
    try:
        found = re.search(r"^base_model:\s*(\S+)\s*$", card.read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, ValueError):
        found = None
    if found is None:
        raise DataError(
            Text(f"{path} does not name its base", f"{path} 没有写明它的基座模型"),
            Text(f"write `base_model: FOLDER` into {card}", f"请把 `base_model: FOLDER` 写入 {card}"),
        )
    return str(located(found[1]))


# -- putting weights on a base ---------------------------------------------------------------------------------------


def add(module: nn.Module, start: Start, pipe: Any = None, component: str | None = None) -> None:
    """Put what `start` adds on the network that was made from its base.

    Args:
        pipe, component: the pipeline, and where in it the network lies: its library reads LoRAs of other trainers.

    Raises:
        DataError: nothing of it fits, or not all.
    """
    for one in start.added:
        state = _adapters(one.place, component)
        if not state:
            weights.load(module, one.place)
        elif all(name.endswith(_LORA) for name in state):
            _merge(module, state, one)
        elif pipe is not None:
            _by_the_library(pipe, module, one.place)
        else:
            raise DataError(
                Text(
                    f"{one.place} holds adapters under names that are not known: {sorted(state)[:2]}",
                    f"{one.place} 中适配器的名称无法识别：{sorted(state)[:2]}",
                )
            )
        log.info("starting from %s: its weights are in %s, and that is the reference", one.place, start.base)


def _adapters(place: Path, component: str | None) -> dict[str, Tensor]:
    """Tensors of adapters by the network's names; empty where the file holds whole weights."""
    if place.is_file() and place.suffix != ".safetensors":
        return {}
    state = read_weights(place)
    if not isinstance(state, Mapping) or not any("lora" in name or "lokr" in name for name in state):
        return {}
    prefix = f"{component}."
    return {name.removeprefix(prefix).replace(".default.", "."): x for name, x in state.items()}


@torch.no_grad()
def _merge(module: nn.Module, state: dict[str, Tensor], one: Added) -> None:
    """weight += strength B A, of every layer that the file names."""
    layers = sorted({name.removesuffix(end) for name in state for end in _LORA if name.endswith(end)})
    known = dict(module.named_modules())
    unknown = [name for name in layers if not isinstance(known.get(name), nn.Linear)]
    if unknown:
        raise DataError(
            Text(
                f"{one.place}: {len(unknown)} of {len(layers)} layers are not in this network: {unknown[:3]}",
                f"{one.place}：{len(layers)} 层中有 {len(unknown)} 层不在这个网络中：{unknown[:3]}",
            ),
            Text("another base, or another file", "请换一个基座模型，或换一个文件"),
        )
    alpha = None if one.strength is not None else _alpha(one.place)
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


def _alpha(file: Path) -> float | None:
    """Of a file's header; None where it says none: alpha is the rank."""
    try:
        with safe_open(file, "pt") as opened:  # type: ignore[no-untyped-call]
            said = json.loads((opened.metadata() or {}).get(STRENGTH, "{}"))
        return next((float(v) for k, v in said.items() if k.rpartition(".")[2] == "lora_alpha"), None)
    except (OSError, ValueError, TypeError, SafetensorError, AttributeError):
        return None


def _by_the_library(pipe: Any, module: nn.Module, place: Path) -> None:
    from peft.tuners.lora import LoraLayer

    try:
        pipe.load_lora_weights(str(place.parent), weight_name=place.name, local_files_only=True)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise DataError(
            Text(f"{place}: diffusers does not load it: {error}", f"{place}：diffusers 无法加载：{error}"),
            Text("see its base", "请检查它的基座模型"),
        ) from None
    if not any(isinstance(layer, LoraLayer) for layer in module.modules()):
        raise DataError(
            Text(f"{place}: none of its adapters is for this network", f"{place}：没有一个适配器属于这个网络"),
            Text("another base, or another file", "请换一个基座模型，或换一个文件"),
        )
    pipe.fuse_lora()
    pipe.unload_lora_weights()
