"""Names and files with which diffusers loads a checkpoint's folder as it is, at the strength that was trained."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor, nn

from anygrpo.core.saved import Form, fixed_of
from anygrpo.core.trained import state_of
from anygrpo.denoising.settings import DenoisingConfig, DiffusionPolicyConfig
from anygrpo.denoising.starting import LORA_FILE, STRENGTH, start_for

if TYPE_CHECKING:
    from anygrpo.denoising.policy import DiffusionPolicy

WEIGHTS_FILE = "diffusion_pytorch_model.safetensors"


def names_of(policy: DiffusionPolicy) -> dict[str, str]:
    """ "NAME.lora_A.default.weight" is "COMPONENT.NAME.lora_A.weight" in diffusers' files."""
    if not _is_lora_of_a_pipeline(policy):
        return {}
    component = component_of(policy)
    return {n: f"{component}.{n.replace('.default.', '.')}" for n in state_of(policy.trainable())}


def form_of(policy: DiffusionPolicy) -> Form:
    """`pipe.load_lora_weights(folder)` of adapters, `Kind.from_pretrained(folder)` of all weights; the weights alone of
    a denoiser that is from no pipeline. Adapters that belong on more than the base are none of diffusers' business: it
    refuses them."""
    if _is_lora_of_a_pipeline(policy):
        if on_more_than_a_base(policy):
            return Form(numbered=True)
        strength = {STRENGTH: json.dumps(_strength(policy.trainable(), component_of(policy)))}
        return Form(LORA_FILE, strength, split=False)
    model: Any = policy.trainable()
    if not (of_pipeline(policy.config) and hasattr(model, "to_json_string")):
        return Form()
    fixed = fixed_of(model, state_of(model))
    return Form(WEIGHTS_FILE, beside={"config.json": model.to_json_string()}, fixed=fixed)


def of_pipeline(config: DenoisingConfig) -> bool:
    """Whether the denoiser was loaded with a pipeline of diffusers."""
    return isinstance(config, DiffusionPolicyConfig) and config.model is not None


def on_more_than_a_base(policy: DiffusionPolicy) -> bool:
    """Whether training started from a base with weights added, which lies in no folder: adapters alone say nothing."""
    return bool(start_for(policy.config).added)


def component_of(policy: DiffusionPolicy) -> str:
    """Where the trained denoiser lies in its pipeline: "unet", "transformer"."""
    from anygrpo.denoising.pipelines import adapter_class

    return adapter_class(str(start_for(policy.config).base)).component


def merged_state(module: nn.Module, rounded: bool = True) -> dict[str, Tensor]:
    """The module's own state_dict under its own names, adapters added to the weights that they adapt. Not `rounded`:
    floating numbers as float32, the sums before any cast."""
    from peft.tuners.lora import LoraLayer

    state = {k: v.detach().cpu().clone() for k, v in module.state_dict().items() if ".lora_" not in k}
    if not rounded:
        state = {k: v.float() if v.is_floating_point() else v for k, v in state.items()}
    for name, layer in module.named_modules():
        if isinstance(layer, LoraLayer):
            key, adapted = f"{name}.base_layer.weight", cast(Any, layer)
            state[key] = (state[key].float() + adapted.get_delta_weight("default").detach().float().cpu()).to(
                state[key]
            )
    return {k.replace(".base_layer.", "."): v for k, v in state.items()}


def _is_lora_of_a_pipeline(policy: DiffusionPolicy) -> bool:
    return policy.config.lora is not None and of_pipeline(policy.config)


def _strength(module: nn.Module, component: str) -> dict[str, Any]:
    """Rank, alpha and layers as PEFT's settings, each under the component's name."""
    from peft.tuners.lora import LoraLayer

    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, LoraLayer)}
    first = next(iter(layers.values()))
    settings = {"r": first.r["default"], "lora_alpha": first.lora_alpha["default"], "target_modules": sorted(layers)}
    return {f"{component}.{key}": value for key, value in settings.items()}
