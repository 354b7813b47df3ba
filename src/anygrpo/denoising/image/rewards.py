"""Rewards of pictures: what a recipe's tables become. Each gives a number or a reason for every picture."""

from __future__ import annotations

import inspect
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anygrpo.core import user_code
from anygrpo.denoising.image.settings import ClipReward, FunctionImageReward
from anygrpo.errors import ConfigError, DataError, suggestion

Outcome = float | str
"""A finite number, or the reason why there is none."""


@dataclass(frozen=True)
class Reward:
    """Attributes:
    function: (images, prompts, columns) -> one number (or None) a picture.
    """

    name: str
    weight: float
    function: Callable[[list[Tensor], list[str], dict[str, list[Any]]], Any]

    def outcomes(self, images: list[Tensor], prompts: list[str], columns: dict[str, list[Any]]) -> list[Outcome]:
        """One for each picture. A call that fails is tried again for each picture alone, so that a bad one costs only
        itself."""
        try:
            return self._checked(self.function(images, prompts, columns), len(images))
        except ConfigError:
            raise
        except Exception as error:
            if len(images) == 1:
                return [user_code.describe(error)]
        each = [({k: [v[i]] for k, v in columns.items()}, i) for i in range(len(images))]
        return [self.outcomes([images[i]], [prompts[i]], one)[0] for one, i in each]

    def _checked(self, values: Any, count: int) -> list[Outcome]:
        values = values.detach().flatten().tolist() if isinstance(values, Tensor) else list(values)
        if len(values) != count:
            raise ConfigError(
                f"the reward {self.name!r} returned {len(values)} numbers for {count} pictures", "one number a picture"
            )
        return [_number(v) for v in values]


def _number(value: Any) -> Outcome:
    if value is None:
        return "no score"
    number = float(value)
    return number if math.isfinite(number) and abs(number) < 3e38 else f"the reward is {number}"


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
            raise ConfigError(f"two rewards are called {name!r}", "give one of them another name")
        out.append(Reward(name, table.weight, _BUILDERS[table.kind](table, columns)))
    return out


def _function(table: FunctionImageReward, columns: set[str]) -> Callable[..., Any]:
    function = user_code.load(table.function)
    try:
        takes = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ConfigError(f"{table.function} cannot be called", "define function(images, prompts, **columns)") from None
    anything = any(p.kind is p.VAR_KEYWORD for p in takes)
    named = {p.name for p in takes if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    needed = {p.name for p in takes if p.default is p.empty and p.name in named}
    given = {"images", "prompts"} | columns | set(table.arguments)
    if lacking := sorted(needed - given):
        raise ConfigError(
            f"{table.function} wants {lacking[0]!r}, which is neither a column "
            f"({', '.join(sorted(columns)) or 'none'}) nor one of its arguments; {suggestion(lacking[0], given)}",
            "a reward is called as function(images, prompts, **columns)",
        )
    if not anything and "images" not in named:
        raise ConfigError(f"{table.function} does not take 'images'", "define function(images, prompts, **columns)")
    if both := sorted(columns & set(table.arguments)):
        raise ConfigError(f"{table.function}: argument {both[0]!r} is also a column", "rename the argument")

    def call(images: list[Tensor], prompts: list[str], rows: dict[str, list[Any]]) -> Any:
        every = {"images": images, "prompts": prompts, **rows}
        return function(**{k: v for k, v in every.items() if anything or k in named}, **table.arguments)

    return call


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
        return lambda images, prompts, rows: [sign * jpeg_kilobytes(x, table.quality) for x in images]

    return build


def _clip(table: ClipReward, columns: set[str]) -> Callable[..., Any]:
    from transformers import CLIPModel, CLIPProcessor

    try:
        model: Any = CLIPModel.from_pretrained(table.model, local_files_only=True)
        processor: Any = CLIPProcessor.from_pretrained(table.model, local_files_only=True)
    except (OSError, ValueError) as error:
        raise DataError(
            f"the clip reward's model {table.model!r}: {error}", "a folder with model and processor"
        ) from error
    model = model.to(table.device).eval().requires_grad_(False)

    @torch.no_grad()
    def call(images: list[Tensor], prompts: list[str], rows: dict[str, list[Any]]) -> list[float]:
        pictures = [(x.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy() for x in images]
        given = processor(text=prompts, images=pictures, return_tensors="pt", padding=True, truncation=True)
        logits = model(**{k: v.to(table.device) for k, v in given.items()}).logits_per_image
        return (logits.diagonal() / table.divide_by).float().cpu().tolist()

    return call


_BUILDERS: dict[str, Callable[[Any, set[str]], Callable[..., Any]]] = {
    "function": _function,
    "compressibility": _jpeg(-1.0),
    "incompressibility": _jpeg(1.0),
    "clip": _clip,
}
