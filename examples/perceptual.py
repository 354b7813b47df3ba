"""Perceptual reward terms for restoration: (restored, clean) [n, 3, H, W] in [0, 1] -> [n], higher is better.

[[task.perceptual]]
name = "edges"
weight = 0.2
function = "examples/perceptual.py:edges"
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from anygrpo.errors import ConfigError

STABLE = 0.0026
"""Constant of the similarity for intensities in [0, 1] (170 for 0-255: Xue et al., arXiv:1308.3052)."""


def edges(restored: Tensor, clean: Tensor) -> Tensor:
    """Mean similarity of gradient magnitudes: 1 where every edge is as strong as in the clean picture."""
    a, b = _magnitude(restored), _magnitude(clean)
    return ((2 * a * b + STABLE) / (a**2 + b**2 + STABLE)).flatten(1).mean(1)


def _magnitude(x: Tensor) -> Tensor:
    grey = x.mean(1, keepdim=True)
    prewitt = grey.new_tensor([[1.0, 0.0, -1.0]] * 3)[None, None] / 3
    return (F.conv2d(grey, prewitt) ** 2 + F.conv2d(grey, prewitt.mT) ** 2 + 1e-12).sqrt()


def lpips(restored: Tensor, clean: Tensor) -> Tensor:
    """Minus LPIPS (AlexNet). Needs `pip install anygrpo[perceptual]`, and torchvision's weights in its cache."""
    measure = _lpips().to(restored.device)
    return -torch.stack([measure(x[None], y[None]) for x, y in zip(restored, clean)])  # it means over a batch


@lru_cache(maxsize=1)
def _lpips() -> Any:
    try:
        from torchmetrics.image.lpip import LearnedPerceptualImagePatchSimilarity

        return LearnedPerceptualImagePatchSimilarity("alex", normalize=True)
    except (ImportError, OSError) as error:
        raise ConfigError(f"LPIPS: {error}", "pip install anygrpo[perceptual]; its weights are fetched once") from error
