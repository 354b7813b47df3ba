"""Rewards of pictures: what a recipe's tables become. Each gives a number or a reason for every picture."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.device import device_of
from anygrpo.denoising.image.settings import ClipRewardConfig, FunctionImageRewardConfig
from anygrpo.denoising.output_rewards import Reward, users
from anygrpo.errors import ConfigError, DataError
from anygrpo.spoken import Text


def build_rewards(tables: Any, columns: set[str]) -> list[Reward]:
    """The rewards of a recipe, in order.

    Raises:
        ConfigError: a function that lacks what it wants, two rewards of one name.
        DataError: no such file or model.
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
        out.append(Reward(name, table.weight, _BUILDERS[table.kind](table, columns)))
    return out


def _function(table: FunctionImageRewardConfig, columns: set[str]) -> Callable[..., Any]:
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
    def build(table: Any, columns: set[str]) -> Callable[..., Any]:
        return lambda rows: [sign * jpeg_kilobytes(x, table.quality) for x in rows["images"]]

    return build


def _clip(table: ClipRewardConfig, columns: set[str]) -> Callable[..., Any]:
    from transformers import CLIPModel, CLIPProcessor

    try:
        model: Any = CLIPModel.from_pretrained(table.model, local_files_only=True)
        processor: Any = CLIPProcessor.from_pretrained(table.model, local_files_only=True)
    except (OSError, ValueError) as error:
        raise DataError(
            Text(f"the clip reward's model {table.model!r}: {error}", f"clip 奖励的模型 {table.model!r}：{error}"),
            Text("a folder with model and processor", "请给出含模型和处理器的文件夹"),
        ) from error
    device = device_of(table.device)
    model = model.to(device).eval().requires_grad_(False)

    @torch.no_grad()
    def call(rows: dict[str, list[Any]]) -> list[float]:
        pictures = [(x.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy() for x in rows["images"]]
        given = processor(text=rows["prompts"], images=pictures, return_tensors="pt", padding=True, truncation=True)
        logits = model(**{k: v.to(device) for k, v in given.items()}).logits_per_image
        return (logits.diagonal() / table.divide_by).float().cpu().tolist()

    return call


_BUILDERS: dict[str, Callable[[Any, set[str]], Callable[..., Any]]] = {
    "function": _function,
    "compressibility": _jpeg(-1.0),
    "incompressibility": _jpeg(1.0),
    "clip": _clip,
}
