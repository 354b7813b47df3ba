"""Old checkpoints, freezing by pattern, and adapters."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import torch
from torch import nn

from anygrpo.errors import ConfigError, suggestion
from anygrpo.models.weights import LoadReport, load

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
            raise ConfigError(f"pattern {pattern!r} matches no parameter", suggestion(pattern, names))
    for name, parameter in network.named_parameters():
        wanted = any(fnmatchcase(name, p) for p in train) and not any(fnmatchcase(name, p) for p in freeze)
        parameter.requires_grad_(wanted)


def add_adapter(network: nn.Module, rank: int, alpha: float, targets: list[str], seed: int) -> nn.Module:
    """LoRA layers inside `network` (peft), its matrices drawn from `seed`; what was trainable before stays so.

    Raises:
        ConfigError: a target names no module, or one of a kind that takes no adapter.
    """
    from peft import LoraConfig, inject_adapter_in_model

    trainable = {id(p) for p in network.parameters() if p.requires_grad}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets)  # type: ignore[arg-type]  # any number
            adapted = inject_adapter_in_model(config, network)
        except ValueError as error:
            raise ConfigError(f"adapter targets {targets}: {error}") from error
    for name, parameter in adapted.named_parameters():
        parameter.requires_grad_("lora_" in name or id(parameter) in trainable)
    return adapted
