"""A short digest of whatever a user's prompt, recipe or weights are made of."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import torch


def digest(value: Any) -> str:
    """16 hex digits of plain values, tensors, arrays and objects of fields; equal values give equal digests."""
    state = hashlib.sha256()
    _add(value, state, 0)
    return state.hexdigest()[:16]


def _add(value: Any, state: Any, depth: int) -> None:
    state.update(f"{type(value).__name__}(".encode())
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous()
        state.update(f"{value.dtype}{list(value.shape)}".encode())
        state.update(value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b"")
    elif isinstance(value, bytes):
        state.update(value)
    elif isinstance(value, dict):
        for key in sorted(value, key=repr):
            _add(key, state, depth + 1)
            _add(value[key], state, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            _add(inner, state, depth + 1)
    elif value is None or isinstance(value, str | int | float | Path):
        state.update(repr(value).encode("utf-8", "backslashreplace"))
    elif hasattr(value, "tobytes"):  # arrays, images
        state.update(value.tobytes())
    elif depth < 8 and (dataclasses.is_dataclass(value) or hasattr(value, "__dict__")):
        _add(dict(vars(value)), state, depth + 1)
    state.update(b")")
