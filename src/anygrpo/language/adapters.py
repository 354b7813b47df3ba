"""LoRA adapters (PEFT's) of a language model, and one function in place of PEFT's pass where it fits.

PEFT computes adapters in float32, from a float32 copy of every layer's input. Here they are computed in the body's
type, as everything around them, from casts that are made once a step; trained weights stay float32.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.errors import ConfigError
from anygrpo.language.compute.narrow import Casts
from anygrpo.language.settings import CausalLMConfig


def with_adapters(model: nn.Module, config: CausalLMConfig, seed: int) -> nn.Module:
    """PEFT's model with float32 adapters, in eval mode.

    Raises:
        ConfigError: no such layers.
    """
    import peft

    targets = config.lora.targets
    lora = peft.LoraConfig(
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,  # type: ignore[arg-type]
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )
    try:
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # between peft and transformers, not ours to act on
            torch.manual_seed(seed)
            adapted = peft.get_peft_model(model, lora).eval()  # type: ignore[arg-type]
    except ValueError as error:
        linear = sorted({n.rsplit(".", 1)[-1] for n, m in model.named_modules() if isinstance(m, nn.Linear)})
        raise ConfigError(f"lora.targets = {targets!r}: {error}", f"this model's linear layers: {linear}") from None
    for p in adapted.parameters():
        if p.requires_grad:
            p.data = p.data.float()
    return adapted


def adapter_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """(name, layer) of everything that PEFT has adapted."""
    for name, module in model.named_modules():
        if hasattr(module, "lora_A") and hasattr(module, "get_delta_weight"):
            yield name, module


def merge(weight: Tensor, layer: Any) -> Tensor:
    """The float32 weight with its adapter added."""
    return weight.detach().float() + layer.get_delta_weight(layer.active_adapters[0]).float()


class Adapters:
    """Gives each adapted plain linear layer of `core` the function below; any other keeps PEFT's pass."""

    def __init__(self, core: nn.Module) -> None:
        self._layers = [layer for _, layer in adapter_layers(core) if _plain(layer)]
        dtype = self._layers[0].base_layer.weight.dtype if self._layers else torch.float32
        self._casts = Casts([matrix for layer in self._layers for matrix in _matrices(layer)], dtype)
        self._led: dict[int, tuple[Tensor, Tensor]] = {}
        for layer in self._layers:
            layer.forward = types.MethodType(self._forward_of(layer), layer)

    def refresh(self) -> None:
        """Make the casts again."""
        self._casts.refresh()

    def bind(self) -> None:
        """Casts of the present adapters, whose gradients arrive at the float32 ones, for the passes that follow."""
        led = self._casts.leads()
        self._led = {id(layer): (led[2 * i], led[2 * i + 1]) for i, layer in enumerate(self._layers)}

    def release(self) -> None:
        """Every layer has PEFT's pass again."""
        for layer in self._layers:
            del layer.forward

    def _forward_of(self, layer: Any) -> Any:
        scaling = layer.scaling[layer.active_adapters[0]]

        def forward(module: Any, x: Tensor) -> Tensor:
            base = module.base_layer
            if module.disable_adapters or x.dtype != base.weight.dtype:
                return type(module).forward(module, x)
            return _Adapted.apply(x, base.weight, base.bias, *self._led[id(module)], scaling)

        return forward


def _plain(layer: Any) -> bool:
    """One adapter of the usual form on a linear layer that is no more than that."""
    from peft.tuners.lora import Linear

    names = layer.active_adapters
    usual = type(layer) is Linear and type(layer.base_layer) is nn.Linear and len(names) == 1
    usual = usual and not any(p.requires_grad for p in layer.base_layer.parameters())
    return usual and names[0] in layer.lora_A and not layer.lora_variant and not layer.fan_in_fan_out


def _matrices(layer: Any) -> tuple[Tensor, Tensor]:
    name = layer.active_adapters[0]
    return layer.lora_A[name].weight, layer.lora_B[name].weight


class _Adapted(torch.autograd.Function):
    """y = x W' + b + s (x A') B' from x [.., in], W [out, in], A [r, in], B [out, r]; keeps x and s x A'. W and b are
    frozen."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, s: float) -> Tensor:
        flat, ctx.shape, ctx.s = x.reshape(-1, x.shape[-1]), x.shape, s
        inner = (flat @ a.t()).mul_(s)
        y = torch.nn.functional.linear(flat, weight, bias).addmm_(inner, b.t())
        ctx.save_for_backward(flat, weight, a, b, inner)
        return y.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        flat, weight, a, b, inner = ctx.saved_tensors
        g = g.reshape(-1, g.shape[-1])
        back = (g @ b).mul_(ctx.s)
        dx = (g @ weight).addmm_(back, a).view(ctx.shape) if ctx.needs_input_grad[0] else None
        return dx, None, None, back.t() @ flat, g.t() @ inner, None
