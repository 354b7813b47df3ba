"""How a model is computed, as its proof at load found right: what is ours and what is left to the library."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from torch import Tensor, nn

from anygrpo.language.compute.bodies import body_of
from anygrpo.language.compute.capability import Ability
from anygrpo.language.compute.head import LOGITS, Head
from anygrpo.language.compute.output_layer import HeadForm, head_of
from anygrpo.language.routers import widened

Sampling = Literal["padded", "cached", "whole"]


@dataclass(frozen=True)
class Paths:
    """Attributes:
    ability: whether a group's prompt is computed once.
    form: what lies between last hidden state and logits; None: the model's own forward is asked for its logits.
    padded: rows of unequal length are scored together, padded on the right; False: only rows of one length are.
    sampling: what generates where prompts are not shared: "padded" rows over the library's cache, the library's own
        generation of rows of one length ("cached"), or whole rows again for every token ("whole").
    kernels: names of the functions put in place of the library's.
    notes: what was left to the library, and why.
    """

    ability: Ability
    form: HeadForm | None = None
    padded: bool = True
    sampling: Sampling = "padded"
    kernels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Everything of the fast path is in use."""
        return self.ability.shared and self.form is not None

    def head(self, model: nn.Module, precise: bool) -> Head:
        """The output layer, or with `form` None what takes logits for hidden states."""
        return LOGITS if self.form is None else head_of(model, precise, self.form)

    def states(self, model: nn.Module, **inputs: Any) -> tuple[Tensor, Any]:
        """What `head` takes of each place, [B, n, H] (or logits [B, n, V]), and the library's output."""
        if self.form is None:
            out = model(**accepted(type(model), inputs))
            return widened(out.logits), out
        body = body_of(model)
        out = body(**accepted(type(body), inputs))
        return widened(out.last_hidden_state), out


def accepted(kind: type, inputs: dict[str, Any]) -> dict[str, Any]:
    """Those of the usual arguments that the forward of `kind` takes."""
    known = _parameters(kind)
    return inputs if known is None else {name: value for name, value in inputs.items() if name in known}


@lru_cache(256)
def _parameters(kind: type) -> frozenset[str] | None:
    """Names of the arguments of a forward; None where it takes any."""
    found = inspect.signature(kind.forward).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in found.values()):
        return None
    return frozenset(found)
