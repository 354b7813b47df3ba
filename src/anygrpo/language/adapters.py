"""LoRA adapters (PEFT's) of a language model, and one function in place of PEFT's pass where it fits.

PEFT computes adapters in float32, from a float32 copy of every layer's input. Here they are computed in the body's
type, as everything around them, from casts that are made once a step; trained weights stay float32.
"""

from __future__ import annotations

import re
import types
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.errors import ConfigError
from anygrpo.language.compute.mirror import without_wrappers
from anygrpo.language.compute.narrow import Casts
from anygrpo.language.compute.trial import Trial, attempt, own_logits
from anygrpo.language.settings import CausalLMConfig
from anygrpo.spoken import Text


def with_adapters(
    model: nn.Module,
    config: CausalLMConfig,
    seed: int,
    trial: Trial | None = None,
    left_out: Collection[int] = (),
) -> tuple[nn.Module, list[str]]:
    """(PEFT's model with float32 adapters, in eval mode; what was left out, and why).

    With a trial each adapter must get a gradient from the library's own forward: of default targets those that get
    none are left out, of named ones they are refused.

    Args:
        left_out: ids of modules that get none.

    Raises:
        ConfigError: no such layers, or adapters that would never learn.
    """
    default, notes = config.lora.targets == "all-linear", []
    without = [n for n, m in model.named_modules() if id(m) in left_out and isinstance(m, nn.Linear)]
    try:
        adapted = _wrapped(model, config, seed, tuple(without))
    except ConfigError as error:
        refused = {n for n, m in model.named_modules() if isinstance(m, nn.Linear) and f"'{_leaf(n)}'" in error.what}
        if not default or not refused:
            raise
        _unwrap(model)
        without += sorted(refused)
        adapted = _wrapped(model, config, seed, tuple(without), only_linear=True)
        notes.append(f"no adapters on {_short(without)}, which PEFT does not take in this model")
    if trial is None:
        return adapted, notes
    problem = attempt(lambda: _run(adapted, trial))
    if problem is not None and default:
        before = {target_of(name, layer) for name, layer in adapter_layers(model)}
        wrapped = sorted(name for name, layer in adapter_layers(model) if _of_parameter(layer))
        model = adapted.unload()  # type: ignore[operator]
        without += wrapped
        adapted = _wrapped(model, config, seed, tuple(without), only_linear=True)
        left = before - {target_of(name, layer) for name, layer in adapter_layers(model)}
        notes.append(f"no adapters on {_short(sorted(left) or wrapped)}, with which the model does not run ({problem})")
        problem = attempt(lambda: _run(adapted, trial))
    if problem is not None:
        raise ConfigError(
            Text(
                f"lora.targets = {config.lora.targets!r}: the model does not run with these adapters: {problem}",
                f"lora.targets = {config.lora.targets!r}：模型不能带这些适配器运行：{problem}",
            ),
            Text("name other layers in lora.targets", "请在 lora.targets 中给出别的层"),
        )
    dead = dead_adapters(adapted, trial)
    if dead and default:
        without += dead
        model = adapted.unload()  # type: ignore[operator]
        adapted = _wrapped(model, config, seed, tuple(without), only_linear=bool(notes))
        notes.append(f"no adapters on {_short(dead)}, which no gradient reaches")
        dead = dead_adapters(adapted, trial)
    if dead:
        raise ConfigError(
            Text(
                f"adapters on {_short(dead)} never get a gradient: nothing that the model computes depends on them",
                f"{_short(dead)} 上的适配器永远得不到梯度：模型计算的内容都不取决于它们",
            ),
            Text("leave them out of lora.targets", "请从 lora.targets 中去掉它们"),
        )
    return adapted, notes


def _wrapped(
    model: nn.Module, config: CausalLMConfig, seed: int, without: tuple[str, ...], only_linear: bool = False
) -> nn.Module:
    import peft

    targets: Any = config.lora.targets
    if only_linear:
        head = getattr(model, "get_output_embeddings", lambda: None)()
        targets = [n for n, m in model.named_modules() if type(m) is nn.Linear and m is not head and n not in without]
    lora = peft.LoraConfig(
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,  # type: ignore[arg-type]
        target_modules=targets if isinstance(targets, str) else list(targets),
        exclude_modules=list(without) or None,
        task_type="CAUSAL_LM",
    )
    try:
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # between peft and transformers, or about merging, which is done elsewhere
            torch.manual_seed(seed)
            adapted = peft.get_peft_model(model, lora).eval()
    except ValueError as error:
        linear = sorted({n.rsplit(".", 1)[-1] for n, m in model.named_modules() if isinstance(m, nn.Linear)})
        raise ConfigError(
            Text(f"lora.targets = {targets!r}: {error}", f"lora.targets = {targets!r}：{error}"),
            Text(f"this model's linear layers: {linear}", f"这个模型的线性层：{linear}"),
        ) from None
    for p in adapted.parameters():
        if p.requires_grad:
            p.data = p.data.float()
    return adapted


def _leaf(name: str) -> str:
    return name.rpartition(".")[2].removesuffix(".base_layer")


def _unwrap(model: nn.Module) -> None:
    """Take out the adapters that PEFT had put in before it refused."""
    for name, module in list(model.named_modules()):
        if hasattr(module, "base_layer"):
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, module.base_layer)


def _run(adapted: Any, trial: Trial) -> None:
    with torch.no_grad():
        own_logits(adapted.get_base_model(), trial.rows[0])


def dead_adapters(adapted: Any, trial: Trial) -> list[str]:
    """Layers whose adapters get no gradient from the library's own forward, in all places of the same name but for
    numbers: an expert that these few tokens did not meet is not dead."""
    named = [(name, p) for name, p in adapted.named_parameters() if p.requires_grad]
    with moved(adapted):
        logits = trial.own(adapted.get_base_model())
        loss = sum((z.float().log_softmax(-1)[:, ::3].square().mean() for z in logits), torch.zeros(()))
        made = torch.autograd.grad(loss, [p for _, p in named], allow_unused=True)
    layer = lambda name: re.split(r"\.lora_", name.removeprefix("base_model.model."))[0]  # noqa: E731
    alike = lambda name: re.sub(r"\d+", "N", layer(name))  # noqa: E731
    alive = {alike(name) for (name, _), g in zip(named, made) if g is not None and bool(g.any())}
    return sorted({layer(name) for name, _ in named if alike(name) not in alive})


@contextmanager
def moved(module: nn.Module) -> Iterator[None]:
    """Adapters away from their beginning, where they are nothing, and back."""
    held = [(p, p.detach().clone()) for n, p in module.named_parameters() if p.requires_grad and ".lora_" in n]
    generator = torch.Generator().manual_seed(0)
    try:
        with torch.no_grad():
            for p, _ in held:
                if not p.any():
                    p.copy_(0.02 * torch.randn(p.shape, generator=generator))
        yield
    finally:
        with torch.no_grad():
            for p, value in held:
                p.copy_(value)


def _short(names: list[str]) -> str:
    """Names with their layers' numbers taken together."""
    return ", ".join(sorted({re.sub(r"\d+", "*", name) for name in names}))


def _of_parameter(layer: Any) -> bool:
    return hasattr(layer, "parameter_name")


def target_of(name: str, layer: Any) -> str:
    """The name of the weight that an adapter adds to, as it is without adapters."""
    return without_wrappers(f"{name}.{getattr(layer, 'parameter_name', 'weight')}")


def adapter_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """(name, layer) of everything that PEFT has adapted."""
    for name, module in model.named_modules():
        if hasattr(module, "lora_A") and hasattr(module, "get_delta_weight"):
            yield name, module


def merge(weight: Tensor, layer: Any) -> Tensor:
    """The float32 weight with its adapter added."""
    delta = layer.get_delta_weight(layer.active_adapters[0]).float()
    return weight.detach().float() + delta.reshape(weight.shape)


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
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        flat, weight, a, b, inner = ctx.saved_tensors
        g = g.reshape(-1, g.shape[-1])
        back = (g @ b).mul_(ctx.s)
        dx = (g @ weight).addmm_(back, a).view(ctx.shape) if ctx.needs_input_grad[0] else None
        return dx, None, None, back.t() @ flat, g.t() @ inner, None
