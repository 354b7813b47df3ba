"""A second model object of the same architecture, whose weights are views, casts or copies of the first one's."""

# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.language.compute.pictures import carry


def mirror(model: nn.Module) -> nn.Module:
    """A twin of `model`, in eval mode, without adapters, whose weights *are* `model`'s until bound or refreshed."""
    with torch.device("meta"):
        twin = type(model)(copy.deepcopy(model.config)).eval()
    for name, buffer in model.named_buffers():
        if ".lora_" not in name:
            owner, leaf = _locate(twin, without_wrappers(name))
            owner._buffers[leaf] = buffer
    for name, p in model.named_parameters(remove_duplicate=False):
        if ".lora_" not in name:
            bind(twin, without_wrappers(name), nn.Parameter(p.detach(), requires_grad=False))
    carry(model, twin)
    return twin


def without_wrappers(name: str) -> str:
    """The name that a weight has where no adapter wraps its layer."""
    return name.replace(".base_layer", "")


def bind(model: nn.Module, name: str, value: Tensor) -> None:
    """Make `value`, with its graph, the weight called `name`."""
    owner, leaf = _locate(model, name)
    owner._parameters[leaf] = value  # type: ignore[assignment]


@torch.no_grad()
def refresh(model: nn.Module, weights: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> None:
    """Bring the weights of a mirror up to date.

    A weight that is the same memory already, of the right type, stays shared. Any other gets memory of its own, cast
    to `dtype`, kept from call to call: captured graphs hold its address.
    """
    places: dict[str, tuple[nn.Module, str]] = model.__dict__.setdefault("_places", {})  # found anew: 10 ms a step
    for name, value in weights:
        owner, leaf = places.get(name) or places.setdefault(name, _locate(model, name))
        held = owner._parameters[leaf]
        assert held is not None
        if held.data_ptr() == value.data_ptr() and value.dtype == dtype:
            continue
        if getattr(held, "_own_memory", False):
            held.copy_(value)
        else:
            own = nn.Parameter(_copied(owner, leaf, value, dtype), requires_grad=False)
            own._own_memory = True
            owner._parameters[leaf] = own


def _copied(owner: nn.Module, leaf: str, value: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy, beside those of the layers that read the same input."""
    together: Any = owner.__dict__.get("_together")
    if together is None or value.shape != getattr(owner, leaf).shape:
        return value.to(dtype, copy=True)
    return together.home(owner, leaf, value, dtype).copy_(value)


def _locate(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return model.get_submodule(path), leaf
