"""A selector: a pointer network that picks items from a pool of its query's own."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import torch
from torch import nn

from anygrpo.core.device import device_of
from anygrpo.errors import ConfigError
from anygrpo.models import weights
from anygrpo.selection.foreign import of_elsewhere, translated
from anygrpo.selection.network import SelectorNetwork
from anygrpo.selection.policy import SelectorPolicy
from anygrpo.selection.settings import SelectorConfig
from anygrpo.spoken import Text

__all__ = ["SelectorNetwork", "SelectorPolicy", "build", "freeze"]


def build(config: SelectorConfig, seed: int) -> SelectorPolicy:
    """A selector with weights drawn from `seed`, or read from `config.model`.

    Raises:
        ConfigError: a freeze pattern that matches nothing, or all. DataError: no such checkpoint.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = SelectorNetwork(config)
    if config.model is not None:
        _load(network, Path(config.model), config)
    freeze(network, config.freeze)
    return SelectorPolicy(config, network.to(device_of(config.device)))


def freeze(module: nn.Module, patterns: tuple[str, ...]) -> None:
    """Fix every parameter whose name matches one of the shell-style `patterns`.

    Raises:
        ConfigError: a pattern matches no parameter, or nothing trainable is left.
    """
    names = [name for name, _ in module.named_parameters()]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            heads = sorted({name.rsplit(".", 1)[0] for name in names})
            raise ConfigError(
                Text(f"freeze pattern {pattern!r} matches no parameter", f"冻结模式 {pattern!r} 没有匹配任何参数"),
                Text("modules: " + ", ".join(heads), f"模块：{', '.join(heads)}"),
            )
    for name, parameter in module.named_parameters():
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            parameter.requires_grad_(False)
    if not any(p.requires_grad for p in module.parameters()):
        raise ConfigError(
            Text(
                f"freeze = {list(patterns)} leaves nothing to train", f"freeze = {list(patterns)} 没有留下可训练的参数"
            )
        )


def _load(network: SelectorNetwork, path: Path, config: SelectorConfig) -> None:
    """A file of weights, a run, a checkpoint, an export, or a selector of another project's."""
    foreign = of_elsewhere(weights.read(path))
    if foreign is None:
        weights.load(network, path)
        return
    report = network.load_state_dict(translated(foreign, config, str(path)), strict=False)
    if report.missing_keys or report.unexpected_keys:
        raise ConfigError(
            Text(
                f"{path} does not fit the policy: missing {report.missing_keys[:3]}, "
                f"unexpected {report.unexpected_keys[:3]}",
                f"{path} 与策略不符：缺少 {report.missing_keys[:3]}，多出 {report.unexpected_keys[:3]}",
            ),
            Text("use the policy section that the checkpoint was trained with", "请用训练该检查点的策略设置"),
        )
