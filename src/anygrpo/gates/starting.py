"""Where a network with gates starts: weights of a file, a checkpoint or a run, and adapters that a run trained.

A run of adapters saved these alone. They are merged into the network that its recipe says they sat on: drawn from that
run's seed, under the weights that it started from itself. The result is where training goes on, and its reference.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.core.hub import located
from anygrpo.core.saved import holds_weights, read_weights
from anygrpo.errors import DataError
from anygrpo.files import read_toml
from anygrpo.gates.loading import add_adapter, load_weights
from anygrpo.gates.settings import GatedConfig, LoraConfig
from anygrpo.spoken import Text, say

log = logging.getLogger("anygrpo")
ADAPTER = ".lora_A.default."
"""What peft calls its matrices: a network's own names may have "lora_" in them."""


@dataclass(frozen=True)
class Adapted:
    """What a run of adapters says of itself. `under`: what it started from, none: its network as drawn from `seed`."""

    lora: LoraConfig
    under: str | None
    seed: int


def seed_of(model: str | None, seed: int) -> int:
    """From which the network is drawn: that of the run whose adapters sit on nothing else, else the present one."""
    found = _adapted(located(model)) if model else None
    if found is None:
        return seed
    return found.seed if found.under is None else seed_of(found.under, seed)


def start(network: nn.Module, model: str, config: GatedConfig) -> None:
    """Give `network` the weights that `model` stands for; each file is read once.

    Raises:
        DataError: they do not fit; the report of names and shapes is in the message. Or they are adapters that lie in
            no run, which would say how strong they are and what they sit on.
    """
    place = located(model)
    found = _adapted(place)
    if not _holds(place) or (found is None and _run_of(place) is not None):
        load_weights(network, model, config.strict, config.table)
        return
    state = read_weights(place)
    if not any(ADAPTER in name for name in state):
        load_weights(network, model, config.strict, config.table, content=state)
        return
    if found is None:
        raise _without_run(place)
    if found.under is not None:
        start(network, found.under, config)
    _merge(network, found, state, model)
    log.info(
        say(
            "starting from %s: its adapters are in the network, and that is the reference",
            "从 %s 开始：它的适配器已并入网络，这就是参考",
        ),
        model,
    )


def _holds(place: Path) -> bool:
    """Whether it is a checkpoint or a run."""
    return place.is_dir() and (holds_weights(place) or (place / "checkpoints").is_dir())


def _run_of(place: Path) -> Path | None:
    return next((run for run in (place, place.parent.parent) if (run / "config.toml").is_file()), None)


def _adapted(place: Path) -> Adapted | None:
    """None where `place` is no checkpoint or run whose recipe has adapters. No weights are read."""
    run = _run_of(place) if _holds(place) else None
    table = read_toml(run / "config.toml") if run is not None else {}
    policy = table.get("policy", {})
    if policy.get("lora") is None:
        return None
    return Adapted(LoraConfig.model_validate(policy["lora"]), policy.get("model"), int(table.get("seed", 0)))


def _without_run(place: Path) -> DataError:
    return DataError(
        Text(
            f"{place} holds adapters, and no config.toml of their run lies above it",
            f"{place} 中是适配器，而上层没有其运行的 config.toml",
        ),
        Text(
            "name the checkpoint inside its run's folder, or the run's export",
            "请给出运行文件夹中的检查点，或该运行的导出",
        ),
    )


@torch.no_grad()
def _merge(network: nn.Module, found: Adapted, state: dict[str, Tensor], model: str) -> None:
    add_adapter(network, found.lora.rank, found.lora.alpha, found.lora.targets, seed=0)
    own = dict(network.named_parameters())
    wrong = [name for name, x in state.items() if name not in own or own[name].shape != x.shape]
    if wrong:
        raise DataError(
            Text(
                f"{model}: {len(wrong)} of {len(state)} trained tensors do not fit this network: {wrong[:3]}",
                f"{model}：{len(state)} 个训练过的张量中有 {len(wrong)} 个与这个网络不符：{wrong[:3]}",
            ),
            Text("use the policy section that the run was trained with", "请使用该运行训练时的策略设置"),
        )
    for name, value in state.items():
        own[name].copy_(value)
    for name, module in list(network.named_modules()):
        layer: Any = module
        if hasattr(layer, "base_layer") and hasattr(layer, "get_delta_weight"):
            base = layer.base_layer
            base.weight.add_(layer.get_delta_weight("default").to(base.weight))
            parent, _, leaf = name.rpartition(".")
            setattr(network.get_submodule(parent), leaf, base)
