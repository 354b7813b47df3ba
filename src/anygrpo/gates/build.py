"""Networks with random gates as policies.

>>> import torch
>>> from torch.distributions import Beta
>>> from anygrpo.gates.build import gate
>>> gate("strength", Beta(torch.tensor([2.0]), torch.tensor([6.0])))  # outside of a policy: the mean
tensor([0.2500])
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from anygrpo.core import user_code
from anygrpo.core.device import device_of
from anygrpo.errors import ConfigError
from anygrpo.gates.choosing import checkpointed
from anygrpo.gates.loading import LoadReport, add_adapter, choose_trainable, load_weights
from anygrpo.gates.policy import StochasticPolicy
from anygrpo.gates.settings import GatedConfig, StochasticConfig
from anygrpo.gates.sites import gate
from anygrpo.gates.starting import seed_of, start
from anygrpo.gates.wrapping import Gate, with_gates
from anygrpo.spoken import Text

__all__ = [
    "Gate",
    "LoadReport",
    "StochasticPolicy",
    "build",
    "checkpointed",
    "gate",
    "load_weights",
    "prepared",
    "with_gates",
]


def prepared(network: nn.Module, config: GatedConfig, seed: int, **given: Any) -> StochasticPolicy:
    """A policy of `network` with the section's weights, freezing and adapter applied."""
    if config.model:
        start(network, config.model, config)
    everything = [] if config.lora else ["*"]
    choose_trainable(network, everything if config.train is None else config.train, config.freeze)
    if config.lora is not None:
        network = add_adapter(network, config.lora.rank, config.lora.alpha, config.lora.targets, seed)
    with_gates(network, *(Gate(**dict(one)) for one in config.gates))
    if not any(p.requires_grad for p in network.parameters()):
        raise ConfigError(
            Text(
                f"train = {config.train} and freeze = {config.freeze} leave no parameter to train",
                f"train = {config.train} 与 freeze = {config.freeze} 没有留下可训练的参数",
            )
        )
    return StochasticPolicy(
        network.to(device_of(config.device)),
        mode=config.deterministic,
        supervised=dict[str, float](config.supervised.items()),
        supervised_gates=config.supervised_gates,
        best_of=config.best_of,
        rows_at_once=config.rows_at_once,
        sites=tuple(config.sites),
        graphs=config.graphs,
        multiple=config.multiple,
        output=config.output,
        dtype=config.dtype,
        **given,
    )


def build(config: StochasticConfig, seed: int) -> StochasticPolicy:
    """The policy of the user's own network.

    Raises:
        ConfigError: the function cannot be called so, raises, or returns no nn.Module, or (with `probe`) one without
            a gate.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(config.model, seed))
        network = user_code.made(config.function, config.arguments)
    if not isinstance(network, nn.Module):
        raise ConfigError(
            Text(
                f"{config.function} returned {type(network).__name__}, not an nn.Module",
                f"{config.function} 返回了 {type(network).__name__}，不是 nn.Module",
            )
        )
    policy = prepared(network, config, seed, inputs=tuple(config.inputs), target=config.target)
    policy.source = {"function": config.function, "arguments": dict(config.arguments)}
    if config.probe is not None:
        policy.probe(config.probe)
    return policy
