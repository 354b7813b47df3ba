"""A reward for images that needs no model: how small JPEG makes them (as in DDPO, arXiv 2305.13301)."""

from __future__ import annotations

import io
import math
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.task import Scores, Task, epoch_indices

ANIMALS = ("cat", "dog", "horse", "monkey", "rabbit", "zebra", "spider", "bird", "sheep", "deer", "cow", "goat", "lion",
           "tiger", "bear", "raccoon")  # fmt: skip


class Compressibility(Task):
    """Prompts "a photo of a cat" ...; reward exp(-bytes / (pixels x scale)) of the image as JPEG at quality 95.

    Args:
        scale: bytes a pixel at which the reward is 1/e.
        incompressible: reward 1 minus that instead.
    """

    def __init__(self, seed: int, scale: float = 0.5, incompressible: bool = False) -> None:
        self.seed, self.scale, self.incompressible = seed, scale, incompressible
        self.size = len(ANIMALS) - 4

    def prompts(self, step: int, count: int) -> list[dict[str, Any]]:
        return [{"prompt": f"a photo of a {ANIMALS[i]}"} for i in epoch_indices(self.size, step, count, self.seed)]

    def held_out(self) -> list[dict[str, Any]]:
        return [{"prompt": f"a photo of a {a}", "seed": s} for a in ANIMALS[self.size :] for s in range(4)]

    def score(self, prompts: list[Any], outputs: list[list[Tensor]]) -> Scores:
        """Images [3, H, W] in [0, 1]."""
        return Scores(torch.tensor([[self._reward(image) for image in row] for row in outputs]))

    def _reward(self, image: Tensor) -> float:
        from PIL import Image

        pixels = (image.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=95)
        small = math.exp(-len(buffer.getvalue()) / (pixels.shape[0] * pixels.shape[1] * self.scale))
        return 1 - small if self.incompressible else small
