"""Old checkpoints, freezing by pattern, and adapters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from anygrpo.errors import ConfigError, suggestion
from anygrpo.models.weights import LoadReport, load
from anygrpo.spoken import Text

__all__ = ["LoadReport", "add_adapter", "choose_trainable", "load_weights"]
load_weights = load


def choose_trainable(network: nn.Module, train: Iterable[str], freeze: Iterable[str]) -> None:
    """requires_grad by shell patterns of parameter names: those of `train` less those of `freeze`.

    Raises:
        ConfigError: a pattern matches nothing.
    """
    names = [name for name, _ in network.named_parameters()]
    train, freeze = list(train), list(freeze)
    for pattern in train + freeze:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(
                Text(f"pattern {pattern!r} matches no parameter", f"模式 {pattern!r} 没有匹配任何参数"),
                suggestion(pattern, names),
            )
    for name, parameter in network.named_parameters():
        wanted = any(fnmatchcase(name, p) for p in train) and not any(fnmatchcase(name, p) for p in freeze)
        parameter.requires_grad_(wanted)


def add_adapter(network: nn.Module, rank: int, alpha: float, targets: str | list[str], seed: int) -> nn.Module:
    """LoRA layers inside `network` (peft), its matrices drawn from `seed`; what was trainable before stays so.

    Raises:
        ConfigError: a target names no module, or one of a kind that takes no adapter.
    """
    from peft import LoraConfig, inject_adapter_in_model

    targets = _targets(network, targets)
    trainable = {id(p) for p in network.parameters() if p.requires_grad}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets)  # type: ignore[arg-type]  # any number
            adapted = inject_adapter_in_model(config, network)
        except ValueError as error:
            raise ConfigError(Text(f"adapter targets {targets}: {error}", f"适配器目标 {targets}：{error}")) from error
    for name, parameter in adapted.named_parameters():
        parameter.requires_grad_("lora_" in name or id(parameter) in trainable)
    return adapted


KINDS = {"all-linear": (nn.Linear,), "all-conv": (nn.Conv1d, nn.Conv2d, nn.Conv3d)}
KINDS["all"] = KINDS["all-linear"] + KINDS["all-conv"]


def _targets(network: nn.Module, targets: str | list[str]) -> list[str]:
    """Full names of the modules that are meant.

    Raises:
        ConfigError: a name or pattern that is none of them.
    """
    able = {n: m for n, m in network.named_modules() if isinstance(m, KINDS["all"]) and _takes_one(m)}
    chosen: list[str] = []
    for target in [targets] if isinstance(targets, str) else targets:
        if target in KINDS:
            mine = [n for n, m in able.items() if isinstance(m, KINDS[target])]
        else:
            mine = [n for n in able if n == target or n.endswith(f".{target}") or fnmatchcase(n, target)]
            mine = mine or [n for n in able if f".{target}." in f".{n}."]  # all of a part
        if not mine:
            raise ConfigError(
                Text(
                    f"adapter targets {target!r}: no convolution or linear layer",
                    f"适配器目标 {target!r}：没有这样的卷积层或线性层",
                ),
                suggestion(target, able),
            )
        chosen += [n for n in mine if n not in chosen]
    return chosen


def _takes_one(module: nn.Module) -> bool:
    """Grouped convolutions take none: peft's second factor would need the groups to divide the rank."""
    return getattr(module, "groups", 1) == 1


@contextmanager
def without_adapters(network: nn.Module) -> Iterator[None]:
    """The network with every adapter off."""
    layers: list[Any] = [m for m in network.modules() if hasattr(m, "enable_adapters")]
    with ExitStack() as stack:
        for layer in layers:
            layer.enable_adapters(False)
            stack.callback(layer.enable_adapters, True)
        yield
    for name, p in network.named_parameters():
        if "lora_" in name:  # peft turns gradients off with the adapter
            p.requires_grad_(True)
