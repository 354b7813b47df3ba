"""Restorers whose gates GRPO trains: frequency windows and fusion strengths, a choice of filters, or of an expert."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from anygrpo.gates.build import StochasticPolicy, prepared
from anygrpo.gates.restorer.experts import ExpertsRestorer
from anygrpo.gates.restorer.frequency import FrequencyRestorer
from anygrpo.gates.restorer.toolbox import ToolboxRestorer
from anygrpo.gates.settings import GatedConfig, RestorerConfig
from anygrpo.gates.starting import seed_of

__all__ = ["ExpertsRestorer", "FrequencyRestorer", "ToolboxRestorer", "build"]

NETWORKS: dict[str, Callable[[RestorerConfig], nn.Module]] = {
    "frequency": lambda c: FrequencyRestorer(
        c.width, c.blocks, c.window, c.fusion, c.concentration, c.gate_features == "detached", c.skip
    ),
    "experts": lambda c: ExpertsRestorer(c.width, c.blocks, c.experts, c.sharpness),
    "toolbox": lambda c: ToolboxRestorer(c.width, c.patch, c.steps, c.sharpness, c.stop),
}


def build(config: RestorerConfig, seed: int) -> StochasticPolicy:
    """The restorer of the recipe, its weights drawn from `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(config.model, seed))
        network = NETWORKS[config.network](config)
    policy = prepared(network, config, seed)
    plain = {"width", "network", *(RestorerConfig.model_fields.keys() - GatedConfig.model_fields.keys())}
    policy.source = {"restorer": config.model_dump(include=plain)}
    return policy
