"""Gradients of a few trained weights, by ours and by the library: how far they are apart."""

from __future__ import annotations

import torch
from torch import Tensor, nn

PROBED = 24
"""Trained tensors whose gradients are compared."""

GRADIENT = {torch.float64: 1e-6, torch.float32: 2e-3, torch.float16: 0.1, torch.bfloat16: 0.25}
"""Largest difference of all probed gradients together, in parts of their norm."""


def probed_of(trained: list[nn.Parameter]) -> list[nn.Parameter]:
    """Some of them, small ones and such of all depths: they cost little."""
    step = max(1, len(trained) // (PROBED // 2))
    chosen = sorted(trained, key=lambda p: p.numel())[: PROBED // 2] + trained[::step][: PROBED // 2]
    return list({id(p): p for p in chosen}.values())


def gradients_of(log_probs: Tensor, probed: list[nn.Parameter]) -> list[Tensor]:
    weight = torch.linspace(-1.0, 2.0, len(log_probs), device=log_probs.device)
    made = torch.autograd.grad((log_probs * weight).sum(), probed, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(made, probed)]


def apart(ours: list[Tensor], theirs: list[Tensor], dtype: torch.dtype) -> str | None:
    """None where gradients agree."""
    norm = sum(float(g.double().square().sum()) for g in theirs) ** 0.5
    gap = sum(float((a.double() - b.double()).square().sum()) for a, b in zip(ours, theirs)) ** 0.5
    far = gap / max(norm, 1e-9)
    return None if far <= GRADIENT.get(dtype, 2e-3) else f"gradients differ by {far:.1%}"
