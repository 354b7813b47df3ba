"""A policy's weights as the library's own model: adapters added, ready to be written."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from anygrpo.language.compute.mirror import bind, mirror
from anygrpo.language.policy import CausalLM


def merged_model(policy: CausalLM, wide: bool = False) -> Any:
    """The library's own model with the present weights, adapters added in float32 and cast once (`wide`: not at all).

    Where an adapter sits on one end of a tied pair the two are written apart, so that neither takes the other's.
    """
    weights, core = policy.weights, policy.weights.base
    try:
        made = mirror(core)
    except Exception:  # a model that cannot be made without memory
        made = copy.deepcopy(core) if policy.config.train != "lora" else _unloaded(policy, wide)
        made = made.float() if wide else made
    else:
        dtype = torch.float32 if wide else weights.dtype
        for name, value in weights.unrounded() if wide else weights.merged():
            bind(made, name, nn.Parameter(value.detach().to(dtype), requires_grad=False))
    return as_the_librarys(made)


def as_the_librarys(model: Any) -> Any:
    """`model`, of which its weights alone are another's still, ready to be written: with a config of its own that names
    no attention of ours, and its tied pair one again."""
    config: Any = copy.deepcopy(model.config)
    config._attn_implementation = "sdpa" if config._attn_implementation == "anygrpo" else None
    model.config = config
    _tie_again(model)
    return model


def _unloaded(policy: CausalLM, wide: bool) -> nn.Module:
    module: Any = copy.deepcopy(policy.weights.module)
    return (module.float() if wide else module).merge_and_unload()


def _tie_again(model: Any) -> None:
    """Tied weights of equal values are one tensor again; of unequal ones the config says that they are two."""
    inner, outer = model.get_input_embeddings(), model.get_output_embeddings()
    text = model.config.get_text_config()
    if inner is None or outer is None or not getattr(text, "tie_word_embeddings", False):
        return
    if inner.weight.shape == outer.weight.shape and torch.equal(inner.weight, outer.weight):
        outer.weight = inner.weight
        return
    for config in {id(c): c for c in (text, model.config)}.values():
        config.tie_word_embeddings = False
