"""The output layer of a Hugging Face model as a `Head`: where its weights are, and its constants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anygrpo.language.compute.head import Head


@dataclass(frozen=True)
class HeadForm:
    """The constants of a `Head`."""

    scale: float = 1.0
    cap: float | None = None


def head_of(model: Any, precise: bool, form: HeadForm | None = None) -> Head:
    """The output layer of a Hugging Face model, with the given constants or those that its config names."""
    layer, form = model.get_output_embeddings(), form or named_form(model)
    return Head(layer.weight, getattr(layer, "bias", None), form.cap, form.scale, precise)


def named_form(model: Any) -> HeadForm:
    """The constants under the names that most configs give them."""
    config = model.config.get_text_config()
    scale = getattr(config, "logit_scale", None) or 1.0 / (getattr(config, "logits_scaling", None) or 1.0)
    return HeadForm(scale, getattr(config, "final_logit_softcapping", None))


def found_forms(model: Any, hidden: Tensor, logits: Tensor) -> Iterator[HeadForm]:
    """Constants with which a linear head may give `logits` [n, V] from `hidden` [n, H], likeliest first.

    The factor is fitted, so that its name and direction in the config do not matter; caps are the config's numbers
    whose name says so.
    """
    yield named_form(model)
    layer, config = model.get_output_embeddings(), model.config.get_text_config()
    raw = Head(layer.weight.detach().double(), _double(getattr(layer, "bias", None))).logits(hidden.double())
    numbers = {name: float(x) for name, x in config.to_dict().items() if type(x) in (int, float)}
    for cap in (None, *(x for name, x in numbers.items() if "cap" in name and x > 0)):
        y = logits.double()
        if cap is not None:
            y = torch.atanh((y / cap).clamp(-1 + 1e-6, 1 - 1e-6)) * cap
        scale = float((raw * y).sum() / raw.square().sum().clamp(min=1e-30))
        near = [v for x in numbers.values() if x for v in (x, 1 / x) if abs(v - scale) <= 1e-3 * abs(scale)]
        yield HeadForm(
            min([*near, 1.0] if abs(scale - 1) < 1e-3 else near or [scale], key=lambda v: abs(v - scale)), cap
        )


def _double(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.detach().double()
