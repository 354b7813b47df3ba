"""Calling a denoiser: diffusers models by their own argument names, guidance, adapters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.core.trained import frozen_weights, state_of
from anygrpo.denoising.settings import LoraConfig
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

Condition = dict[str, Tensor]
"""What a denoiser is conditioned on, by argument name; every leaf [n, ...]."""


THOUSANDTHS = frozenset({
    "FluxTransformer2DModel", "Flux2Transformer2DModel", "QwenImageTransformer2DModel", "QwenImage21Transformer2DModel",
    "ChromaTransformer2DModel", "LongCatImageTransformer2DModel", "OvisImageTransformer2DModel",
    "BriaFibo2Transformer2DModel",
})  # fmt: skip
"""Models of diffusers whose level runs from 0 to 1: their pipelines pass timestep / 1000."""


class DiffusersDenoiser(nn.Module):
    """A diffusers UNet or transformer as `denoiser(x, timestep, **condition)`, the timestep counting to 1000.

    The first argument is called `sample` in UNets and `hidden_states` in transformers; both call the level `timestep`.

    Args:
        unit: the model's own level per timestep; None: by the model's class (1/1000 for Flux and its like).
    """

    def __init__(self, model: nn.Module, unit: float | None = None):
        super().__init__()
        self.model = model
        names = list(inspect.signature(model.forward).parameters)
        if names[0] not in ("sample", "hidden_states") or "timestep" not in names:
            raise ConfigError(
                Text(
                    f"{type(model).__name__}.forward takes {names[:4]}: not a diffusers denoiser",
                    f"{type(model).__name__}.forward 接受 {names[:4]}：不是 diffusers 的去噪器",
                ),
                Text(
                    "pass a module called as module(x, timestep, **condition) instead",
                    "请给出按 module(x, timestep, **condition) 调用的模块",
                ),
            )
        self.first = names[0]
        self.unit = unit if unit is not None else 1e-3 if type(model).__name__ in THOUSANDTHS else 1.0

    def forward(self, x: Tensor, timestep: Tensor, **condition: Tensor) -> Tensor:
        return self.call(x, timestep, condition)

    def call(self, x: Tensor, timestep: Tensor, condition: Condition, **more: Tensor | None) -> Tensor:
        """The model's output; `more` goes to it as it is (position ids keep their dtype)."""
        dtype = self.dtype
        cast = {k: v.to(dtype) if v.is_floating_point() else v for k, v in condition.items()}
        level = timestep if self.unit == 1.0 else timestep.float() * self.unit
        given = self.arguments(cast) | {k: v for k, v in more.items() if v is not None}
        return self.model(**{self.first: x.to(dtype)}, timestep=level, return_dict=False, **given)[0]

    @property
    def dtype(self) -> torch.dtype:
        """What the model computes in: diffusers keeps single layers of some models in float32."""
        own = getattr(self.model, "dtype", None)
        return own if isinstance(own, torch.dtype) else next(self.model.parameters()).dtype

    def arguments(self, condition: Condition) -> dict[str, Any]:
        """The condition as the model's own arguments."""
        return dict(condition)


def model_of(denoiser: nn.Module) -> nn.Module:
    """The library's own module inside a denoiser, whose tensors bear the library's names; or the denoiser itself."""
    return denoiser.model if isinstance(denoiser, DiffusersDenoiser) else denoiser


def guided(
    denoiser: nn.Module, x: Tensor, timestep: Tensor, condition: Condition, null: Condition, scale: float
) -> Tensor:
    """Prediction with classifier-free guidance, float32 [n, *E]: the one function for sampling and for scoring.

    Args:
        null: leaves [1, ...] that replace the condition's in the unconditional half.
        scale: w in uncond + w (cond - uncond); 1 is the conditional prediction alone.
    """
    if scale == 1.0:
        return denoiser(x, timestep, **condition).float()
    empty = {k: null[k].to(v).expand_as(v) if k in null else v for k, v in condition.items()}
    both = {k: torch.cat([v, empty[k]]) for k, v in condition.items()}
    out = denoiser(torch.cat([x, x]), torch.cat([timestep, timestep]), **both).float()
    with_condition, without = out.chunk(2)
    return without + scale * (with_condition - without)


DIFFUSERS_LINEAR = "to_q to_k to_v to_out.0 add_q_proj add_k_proj add_v_proj to_add_out net.0.proj net.2"
MOTION_LINEAR = "query key value out up down"
ATTENTION_AND_FEEDFORWARD = tuple(f"{DIFFUSERS_LINEAR} {MOTION_LINEAR}".split())
"""Suffixes of linear layers in diffusers' attention and feed-forward blocks and in our motion transformer's."""


def _targets(module: nn.Module, lora: LoraConfig) -> list[str]:
    suffixes = ATTENTION_AND_FEEDFORWARD if lora.targets == "attention_and_feedforward" else lora.targets
    linear = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    found = [name for name in linear if any(name == s or name.endswith("." + s) for s in suffixes)]
    if not found:
        raise ConfigError(
            Text(
                f"no linear layer ends with any of {list(suffixes)}",
                f"没有线性层的名称以 {list(suffixes)} 中的任何一个结尾",
            ),
            Text(f"this model has {linear[:6]} ...", f"这个模型有 {linear[:6]} ..."),
        )
    return found


class Reference:
    """The frozen policy that KL is measured to: LoRA off, or a copy of all weights made at the start."""

    def __init__(self, module: nn.Module, lora: LoraConfig | None, seed: int):
        self.module, self.lora = module, lora
        self.frozen: dict[str, Tensor] = {}
        if lora is not None:
            _add_adapters(module, lora, seed)

    def to(self, device: torch.device) -> None:
        """Move the model; the frozen copy of full-weight training is made there."""
        self.module.to(device)
        if self.lora is None:
            self.frozen = {name: p.clone() for name, p in state_of(self.module).items()}

    @contextmanager
    def __call__(self) -> Iterator[None]:
        if self.lora is None:
            with frozen_weights(self.module, self.frozen):
                yield
            return
        from peft.tuners.tuners_utils import BaseTunerLayer

        adapted = [layer for layer in self.module.modules() if isinstance(layer, BaseTunerLayer)]
        for layer in adapted:
            layer.enable_adapters(False)
        try:
            yield
        finally:
            for layer in adapted:
                layer.enable_adapters(True)


def _add_adapters(module: nn.Module, lora: LoraConfig, seed: int) -> None:
    from peft import LoraConfig as PeftConfig
    from peft import inject_adapter_in_model

    module.requires_grad_(False)
    config = PeftConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]
        lora_dropout=0.0,
        target_modules=_targets(module, lora),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(config, module)
    for p in module.parameters():
        if p.requires_grad:
            p.data = p.data.float()


def in_training(module: nn.Module) -> bool:
    """Whether any part of it is in training mode."""
    rest = [module]
    while rest:
        one = rest.pop()
        if one.training:
            return True
        rest.extend(one.children())
    return False


def checkpoint_gradients(module: nn.Module) -> None:
    """Recompute activations in the backward pass, by the model's own switch.

    Raises:
        ConfigError: the model has none.
    """
    model: Any = model_of(module)
    if not hasattr(model, "enable_gradient_checkpointing"):
        raise ConfigError(
            Text(f"{type(model).__name__} has no gradient checkpointing", f"{type(model).__name__} 不支持梯度检查点"),
            "gradient_checkpointing = false",
        )
    model.enable_gradient_checkpointing()
