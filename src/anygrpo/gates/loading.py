"""Old checkpoints, freezing by pattern, and adapters."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch import Tensor, nn

from anygrpo.core.saved import read_weights
from anygrpo.errors import ConfigError, DataError, suggestion

log = logging.getLogger("anygrpo")
WRAPPERS = ("state_dict", "model", "params", "net", "network")
PREFIXES = ("module.", "net.", "network.", "model.")


@dataclass(frozen=True)
class LoadReport:
    """What a checkpoint and a network did not share.

    Attributes:
        loaded: parameters and buffers taken.
        missing: in the network only; they keep their start values.
        unexpected: in the checkpoint only.
        mismatched: "name: checkpoint shape, network shape".
    """

    loaded: int
    missing: list[str]
    unexpected: list[str]
    mismatched: list[str]

    def __str__(self) -> str:
        parts = [f"{self.loaded} tensors loaded"]
        for word, names in (
            ("missing", self.missing),
            ("unexpected", self.unexpected),
            ("of another shape", self.mismatched),
        ):
            if names:
                parts.append(f"{len(names)} {word} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})")
        return "; ".join(parts)


def read_state(path: str) -> dict[str, Tensor]:
    """A flat state dict from a file, or a checkpoint's or run's folder; wrapper keys of other trainers are removed."""
    if not Path(path).exists():
        raise DataError(f"checkpoint {path} does not exist")
    state = read_weights(Path(path))
    for key in WRAPPERS:
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise DataError(f"{path} holds no state dict of tensors")
    return state


def load_weights(network: nn.Module, path: str, strict: bool = True) -> LoadReport:
    """Load a checkpoint into the whole network.

    Raises:
        DataError: strict and anything differs, or nothing at all fits; the report is in the message.
    """
    own, state = network.state_dict(), read_state(path)
    for prefix in PREFIXES:
        if state and all(name.startswith(prefix) for name in state) and not any(n.startswith(prefix) for n in own):
            state = {name[len(prefix) :]: value for name, value in state.items()}
    shared = own.keys() & state.keys()
    fits = {name for name in shared if own[name].shape == state[name].shape}
    report = LoadReport(
        len(fits),
        sorted(own.keys() - state.keys()),
        sorted(state.keys() - own.keys()),
        [f"{n}: {tuple(state[n].shape)}, {tuple(own[n].shape)}" for n in sorted(shared - fits)],
    )
    differs = report.missing or report.unexpected or report.mismatched
    if not fits or (strict and differs):
        raise DataError(f"{path} does not fit the network: {report}", "set strict = false to load what fits")
    network.load_state_dict({**own, **{name: state[name] for name in fits}})
    if differs:
        log.warning("%s: %s", path, report)
    return report


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
