"""The part of a model that ends in hidden states."""

from __future__ import annotations

from typing import Any


def body_of(model: Any) -> Any:
    """The library's own `base_model`; where that is the model itself, what it calls `model`."""
    found = model.base_model
    return model.model if found is model and hasattr(model, "model") else found
