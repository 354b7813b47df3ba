"""Rewards of pictures: what a recipe's tables become. Each gives a number or a reason for every picture."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from torch import Tensor

from anygrpo.denoising.image import scorers
from anygrpo.denoising.image.settings import FunctionImageRewardConfig
from anygrpo.denoising.output_rewards import Reward, users
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

Prompts = list[dict[str, Any]]
"""Rows of the prompt file: "prompt", and columns."""


def build_rewards(tables: Any, train: Prompts, held_out: Prompts) -> list[Reward]:
    """The rewards of a recipe, in order. A column is one that the training prompts have.

    Raises:
        ConfigError: a function that lacks what it wants, two rewards of one name.
        DataError: no such file or model, a prompt that does not say what is to be read.
    """
    out: list[Reward] = []
    for table in tables:
        default = table.function.rpartition(":")[2] if table.kind == "function" else table.kind
        name = table.name or default
        if any(name == other.name for other in out):
            raise ConfigError(
                Text(f"two rewards are called {name!r}", f"有两个奖励都叫 {name!r}"),
                Text("give one of them another name", "请给其中一个换名称"),
            )
        out.append(Reward(name, table.weight, _BUILDERS[table.kind](table, train, held_out)))
    return out


def _function(table: FunctionImageRewardConfig, train: Prompts, held_out: Prompts) -> Callable[..., Any]:
    columns = {key for row in train for key in row} - {"prompt"}
    return users(table.function, table.arguments, columns | {"images", "prompts"}, "images")


def jpeg_kilobytes(image: Tensor, quality: int = 95) -> float:
    """Size of [3, H, W] in [0, 1] as JPEG, in 1000 bytes; of a video the mean over its frames."""
    from PIL import Image

    if image.dim() == 4:
        return sum(jpeg_kilobytes(frame, quality) for frame in image) / len(image)
    pixels = (image.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    buffer = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(buffer, "JPEG", quality=quality)
    return len(buffer.getvalue()) / 1000


def _jpeg(sign: float) -> Callable[..., Any]:
    def build(table: Any, train: Prompts, held_out: Prompts) -> Callable[..., Any]:
        return lambda rows: [sign * jpeg_kilobytes(x, table.quality) for x in rows["images"]]

    return build


_BUILDERS: dict[str, Callable[[Any, Prompts, Prompts], Callable[..., Any]]] = {
    "function": _function,
    "compressibility": _jpeg(-1.0),
    "incompressibility": _jpeg(1.0),
    "clip": lambda table, train, held_out: scorers.clip(table),
    "aesthetic": lambda table, train, held_out: scorers.aesthetic(table),
    "ocr": lambda table, train, held_out: scorers.ocr(table, [*train, *held_out]),
}
