"""The trained weights of a module, by name: taken, loaded, and swapped for the reference's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """The trainable weights by name: all that a checkpoint of the policy needs (adapters alone under LoRA)."""
    return {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}


def load_state(module: nn.Module, state: Mapping[str, Tensor], names: Mapping[str, str] | None = None) -> None:
    """Load what `state_of` returned, by its names or (`names`, of `saved_names`) by the library's.

    Raises:
        ConfigError: names or shapes differ; both are named.
    """
    own = dict(state_of(module))
    if names and own.keys() - state.keys():
        under = {name: name if name in state else names.get(name, name) for name in own}
        state = {name: state[key] for name, key in under.items() if key in state} | {
            name: value for name, value in state.items() if name not in own and name not in names.values()
        }
    missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    if missing or unexpected:
        raise ConfigError(
            Text(
                f"checkpoint does not fit the model: missing {missing[:3]}, unexpected {unexpected[:3]}",
                f"检查点与模型不符：缺少 {missing[:3]}，多出 {unexpected[:3]}",
            )
        )
    with torch.no_grad():
        for name, tensor in own.items():
            value = state[name]
            if tensor.shape != value.shape:
                raise ConfigError(
                    Text(
                        f"{name}: checkpoint {tuple(value.shape)}, model {tuple(tensor.shape)}",
                        f"{name}：检查点为 {tuple(value.shape)}，模型为 {tuple(tensor.shape)}",
                    )
                )
            tensor.copy_(value)


@contextmanager
def frozen_weights(module: nn.Module, frozen: dict[str, Tensor]) -> Iterator[None]:
    """Swap `frozen` (a copy made by `state_of` at the start) into the module, and back. For full-weight references."""
    live = {name: p.data for name, p in module.named_parameters() if name in frozen}
    try:
        for name, p in module.named_parameters():
            if name in frozen:
                p.data = frozen[name].to(p.dtype)
        yield
    finally:
        for name, p in module.named_parameters():
            if name in live:
                p.data = live[name]
