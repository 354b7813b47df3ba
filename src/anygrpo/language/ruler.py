"""What an exported folder is measured by: the numbers that were trained, written apart from the folder that is judged.

A narrow type rounds, so an export in it may differ from the training pass. How far is told by what the plain library
loses between float32 and that type on these numbers alone; a folder that told it itself would pass whatever it says.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anygrpo.language.adapters import adapter_layers
from anygrpo.language.compute.mirror import mirror
from anygrpo.language.merging import as_the_librarys, merged_model
from anygrpo.language.policy import CausalLM
from anygrpo.models.loading import resolve
from anygrpo.models.origin import origin
from anygrpo.models.smollm2 import quiet


def base_of(policy: CausalLM, place: Path) -> str:
    """Where the library loads what the adapters sit on: the model's own folder or Hub name; where training began from
    an adapter, a run or a model in memory, a copy written to `place`."""
    model = policy.config.model
    if model != "memory" and origin(model).kind == "plain":
        return resolve(model)
    written = place / "base"
    if not written.is_dir():
        with quiet():
            _without_adapters(policy).save_pretrained(written)
    return str(written)


def ruler(policy: CausalLM, format: str, place: Path) -> dict[str, Any] | None:
    """How the library loads the trained numbers, unrounded: the whole model in float32, or base and adapters. None
    where the policy is in float32 and nothing is rounded.

    A folder of adapters is measured by the whole model, whose adapters we add ourselves: what PEFT's own writing leaves
    out would be missing from adapters that it wrote here too. A merged folder is measured by base and adapters, which
    the library adds. Adapters on one end of a tied pair cannot be merged by the library without changing the other
    end, so of these the whole model is written. A quantized base has no numbers to add to: there its adapters are
    measured by PEFT's own copy, and what the writing itself loses is not found.
    """
    if policy.weights.dtype == torch.float32:
        return None
    if _quantized(policy) or (format == "merged" and not _on_tied(policy)):
        module: Any = policy.weights.module
        with quiet():
            module.save_pretrained(place / "adapters", save_embedding_layers=False)
        return {"format": "peft", "folder": str(place / "adapters"), "base": base_of(policy, place)}
    with quiet():
        merged_model(policy, wide=True).save_pretrained(place / "wide")
    return {"format": "full", "folder": str(place / "wide"), "base": None}


def _without_adapters(policy: CausalLM) -> Any:
    core = policy.weights.base
    try:
        made: Any = mirror(core)
    except Exception:  # a model that cannot be made without memory
        module: Any = copy.deepcopy(policy.weights.module)
        made = module.unload()
    return as_the_librarys(made)


def _quantized(policy: CausalLM) -> bool:
    """Whether frozen weights are packed, here or in the model's own folder."""
    model: Any = policy.weights.base
    return policy.config.quantize != "none" or getattr(model.config, "quantization_config", None) is not None


def _on_tied(policy: CausalLM) -> bool:
    """Whether an adapter sits on weights that another place shares."""
    model: Any = policy.weights.base
    held = [p.data_ptr() for _, p in model.named_parameters(remove_duplicate=False)]
    layers = (layer.get_base_layer() for _, layer in adapter_layers(model))
    own = [p for layer in layers for p in layer.parameters(recurse=False)]
    return any(held.count(p.data_ptr()) > 1 for p in own if isinstance(p, nn.Parameter) and p.numel())
