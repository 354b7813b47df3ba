"""Causal language models: generation, training pass and weights behind the policy protocol."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from anygrpo.core import device as machine
from anygrpo.errors import ConfigError
from anygrpo.language.adapters import moved
from anygrpo.language.body import Weights
from anygrpo.language.compute.attention import install
from anygrpo.language.compute.log_probs import Scorer
from anygrpo.language.compute.paths import Paths
from anygrpo.language.compute.pictures import Pictures
from anygrpo.language.compute.trial import Trial, beyond_text, own_logits
from anygrpo.language.conversation import check_template
from anygrpo.language.engine.builtin import BuiltinEngine
from anygrpo.language.generation import Engine
from anygrpo.language.policy import CausalLM
from anygrpo.language.prompts import Prompts
from anygrpo.language.proof import prove_sampling, prove_scoring
from anygrpo.language.settings import CausalLMConfig
from anygrpo.language.tasks.pictures import example, opened
from anygrpo.language.unfreezing import language_modules
from anygrpo.models import loading
from anygrpo.spoken import Text

log = logging.getLogger("anygrpo")

__all__ = ["CausalLM", "build", "from_model"]


def build(config: CausalLMConfig, seed: int) -> CausalLM:
    """The policy of a recipe's [policy] section. Adapters are initialised from `seed`.

    Raises:
        DataError: model or tokenizer not found. ConfigError: settings that the model cannot take.
    """
    device, dtype = machine.prepare(config.device, config.dtype, config.threads)
    vision = config.vision is not None
    reader = loading.load_processor(config.model) if vision else loading.load_tokenizer(config.model)
    # Weights in training are float32; a frozen body is loaded in the type it computes in.
    kind = dtype if config.train == "lora" else torch.float32
    load = lambda: loading.load_model(config.model, kind, str(device), config.quantize, vision)  # noqa: E731
    return _assemble(load(), reader, config, dtype, seed, load)


def from_model(model: nn.Module, tokenizer: Any, config: CausalLMConfig, seed: int = 0) -> CausalLM:
    """A policy around a model already in memory (float32 weights); its present weights are the reference.

    Args:
        tokenizer: with [policy.vision] the model's processor.
    """
    dtype = torch.float32 if config.dtype == "auto" else getattr(torch, config.dtype)
    initial = {name: p.detach().clone() for name, p in model.named_parameters()} if config.train != "lora" else {}
    return _assemble(model.eval(), tokenizer, config, dtype, seed, lambda: _State(initial))


def _with_template(processor: Any) -> Any:
    """The processor's tokenizer, with its chat template."""
    tokenizer = processor.tokenizer
    tokenizer.chat_template = getattr(processor, "chat_template", None) or getattr(tokenizer, "chat_template", None)
    return tokenizer


class _State(nn.Module):
    """Named weights without a model: what `Weights` asks of a reference."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self._weights = weights

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        return iter(self._weights.items())


def _assemble(
    model: nn.Module, reader: Any, config: CausalLMConfig, dtype: torch.dtype, seed: int, reload: Any
) -> CausalLM:
    tokenizer, pictures = reader, None
    if config.vision is not None:
        tokenizer, pictures = _with_template(reader), Pictures.of(reader, model, opened)
        pictures.install(model)
    ends = loading.end_ids(model, tokenizer, config.eos)
    prompts = Prompts(tokenizer, config, loading.context_length(model), ends, pictures)
    device = next(model.parameters()).device
    precise = config.head == "float32" or (config.head == "auto" and device.type == "cuda")
    whole: Any = model.config
    size = whole.get_text_config().vocab_size
    trial = Trial.of(tokenizer, size, device, prompts.encode([example()], 0)[0] if pictures else ())
    if pictures is not None:
        look = lambda: own_logits(model, trial.rows[0])  # noqa: E731
        trial = replace(trial, never=prompts.never, apart=beyond_text(model, language_modules(model)[0], look))
    weights = Weights(model, config, dtype, seed, reload, trial)
    with moved(weights.module):
        paths = prove_scoring(weights, trial, config.attention, precise)
        paths, engine = _ENGINES[config.engine](config, weights, prompts, precise, paths, trial)
    paths = replace(paths, kernels=weights.kernels, notes=(*weights.notes, *paths.notes))
    for note in paths.notes:
        log.warning("%s: %s", type(model).__name__, note)
    policy = CausalLM(config, weights, Scorer(device, precise, paths), prompts, engine)
    if policy.talk is not None and (said := check_template(prompts)) is not None:
        log.warning("%s", said)
    return policy


Made = tuple[Paths, Engine]


def _builtin(
    config: CausalLMConfig, weights: Weights, prompts: Prompts, precise: bool, paths: Paths, trial: Trial
) -> Made:
    def engine_of(model: nn.Module, paths: Paths) -> BuiltinEngine:
        head = lambda m: paths.head(m, precise)  # noqa: E731
        return BuiltinEngine(model, weights.dtype, head, prompts.text, paths, weights.live)

    if paths.ability.shared:
        install(weights.sampler)
    return prove_sampling(weights, paths, trial, engine_of)


def _server(
    config: CausalLMConfig, weights: Weights, prompts: Prompts, precise: bool, paths: Paths, trial: Trial
) -> Made:
    return paths, importlib.import_module("anygrpo.language.engine.vllm_server").build_engine(
        config, weights.dtype, prompts
    )


def _vllm(
    config: CausalLMConfig, weights: Weights, prompts: Prompts, precise: bool, paths: Paths, trial: Trial
) -> Made:
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            Text('engine = "vllm" needs the package vllm', 'engine = "vllm" 需要 vllm 包'),
            Text(
                "pip install 'anygrpo[vllm]', or engine = builtin", "pip install 'anygrpo[vllm]'，或 engine = builtin"
            ),
        )
    return paths, importlib.import_module("anygrpo.language.engine.vllm").build_engine(config, weights.dtype, prompts)


_ENGINES = {"builtin": _builtin, "vllm": _vllm, "vllm_server": _server}
