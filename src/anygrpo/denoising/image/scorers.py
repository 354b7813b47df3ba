"""Scorers of pictures that look with a network: CLIP's agreement, the aesthetic predictor, a reader of letters."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anygrpo.core.device import device_of
from anygrpo.denoising.image.pictures import to_image
from anygrpo.denoising.image.settings import AestheticRewardConfig, ClipRewardConfig, OcrRewardConfig
from anygrpo.errors import ConfigError, DataError, not_installed, suggestion
from anygrpo.models.weights import read, tables
from anygrpo.spoken import Text

Rows = dict[str, list[Any]]
"""Column -> one value a picture; "images" and "prompts" among them."""
Scorer = Callable[[Rows], list[Any]]


def pixels(image: Tensor) -> Any:
    """[3, H, W] in [0, 1] as uint8 [H, W, 3]; of a video its middle frame."""
    return np.asarray(to_image(image))


def clip(table: ClipRewardConfig) -> Scorer:
    """logit scale x cosine(picture, prompt) / divide_by.

    Raises:
        DataError: no such model.
    """
    model, processor = _clip_of(table.model, "clip")
    device = device_of(table.device)
    model.to(device)

    @torch.no_grad()
    def call(rows: Rows) -> list[float]:
        pictures = [pixels(x) for x in rows["images"]]
        given = processor(text=rows["prompts"], images=pictures, return_tensors="pt", padding=True, truncation=True)
        logits = model(**{k: v.to(device) for k, v in given.items()}).logits_per_image
        return (logits.diagonal() / table.divide_by).float().cpu().tolist()

    return call


def _clip_of(folder: str, name: str) -> tuple[Any, Any]:
    from transformers import CLIPModel, CLIPProcessor

    try:
        model: Any = CLIPModel.from_pretrained(folder, local_files_only=True)
        return model.eval().requires_grad_(False), CLIPProcessor.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise DataError(
            Text(f"the {name} reward's model {folder!r}: {error}", f"{name} 奖励的模型 {folder!r}：{error}"),
            Text("a folder with model and processor", "请给出含模型和处理器的文件夹"),
        ) from error


def aesthetic(table: AestheticRewardConfig) -> Scorer:
    """The improved aesthetic predictor (LAION): linear layers on a CLIP picture embedding of length 1, over divide_by.

    Raises:
        DataError: no such model or head, or a head that does not take its embedding.
    """
    model, processor = _clip_of(table.model, "aesthetic")
    device = device_of(table.device)
    model.to(device)
    head = head_of(table.head, model.config.projection_dim).to(device)

    @torch.no_grad()
    def call(rows: Rows) -> list[float]:
        given = processor(images=[pixels(x) for x in rows["images"]], return_tensors="pt")
        found = model.visual_projection(model.vision_model(given["pixel_values"].to(device)).pooler_output)
        return (head(nn.functional.normalize(found, dim=-1))[:, 0] / table.divide_by).float().cpu().tolist()

    return call


def head_of(file: str, width: int) -> nn.Sequential:
    """The published head: `layers.N.weight` and `.bias`, by N, nothing between them (its dropouts are off).

    Raises:
        DataError: no such file, or layers that do not follow each other from `width` numbers to one.
    """
    found = _layers(file)
    weights = [(found[n, "weight"], found[n, "bias"]) for n in sorted({n for n, _ in found})]
    sizes = [width, *(len(w) for w, _ in weights)]
    if sizes[-1] != 1 or any(w.shape[1] != n or len(w) != len(b) for (w, b), n in zip(weights, sizes)):
        chain = [tuple(w.shape) for w, _ in weights]
        raise DataError(
            Text(
                f"{file}: layers of {chain} do not lead from the model's {width} numbers to one",
                f"{file}：各层 {chain} 不能从模型的 {width} 个数导出一个数",
            ),
            Text(
                "the CLIP model that the head was trained on (ViT-L/14: 768)",
                "请用训练该头的 CLIP 模型",
            ),
        )
    made = nn.Sequential(*(nn.Linear(w.shape[1], len(w)) for w, _ in weights))
    for layer, (weight, bias) in zip(made, weights):
        layer.load_state_dict({"weight": weight, "bias": bias})
    return made.eval().requires_grad_(False)


def _layers(file: str) -> dict[tuple[int, str], Tensor]:
    """{(N, "weight" | "bias"): tensor} of the file's table that has layers, wherever a trainer nested it."""
    told = Text("its state dict: layers.N.weight and layers.N.bias", "其状态字典：layers.N.weight、layers.N.bias")
    try:
        found = tables(read(file))
    except DataError as error:
        what = Text(f"the aesthetic reward's head: {error.what}", f"aesthetic 奖励的头：{error.what}")
        raise DataError(what, error.cure or told) from None
    for table in found.values():
        named = ((re.search(r"(?:^|\.)layers\.(\d+)\.(weight|bias)$", key), x) for key, x in table.items())
        layers = {(int(at[1]), at[2]): x.float() for at, x in named if at}
        kinds = {(n, kind): 2 if kind == "weight" else 1 for n, _ in layers for kind in ("weight", "bias")}
        if layers and {key: x.dim() for key, x in layers.items()} == kinds:
            return layers
    raise DataError(
        Text(f"the aesthetic reward's head: {file} holds no layers", f"aesthetic 奖励的头：{file} 中没有各层的权重"),
        told,
    )


def ocr(table: OcrRewardConfig, prompts: list[Rows]) -> Scorer:
    """1 - edit distance / length of the wanted text, without spaces and case (Flow-GRPO, arXiv 2505.05470): 1 where the
    picture holds it, 0 at the least.

    Args:
        prompts: the task's rows; each must say what is to be read.

    Raises:
        ConfigError: no such column. DataError: a row without a wanted text, or the reader is not installed.
    """
    if table.column is not None and (known := {k for row in prompts for k in row}) and table.column not in known:
        raise ConfigError(
            Text(
                f"the ocr reward's column {table.column!r}; {suggestion(table.column, known)}",
                f"ocr 奖励的列 {table.column!r}；{suggestion(table.column, known)}",
            )
        )
    for row in prompts:
        said = row["prompt"] if table.column is None else row.get(table.column)
        if not bare(wanted(said, table.column is None)):
            where = "between double quotes" if table.column is None else f"in column {table.column!r}"
            raise DataError(
                Text(f"the prompt {row['prompt']!r} has no text {where}", f"提示 {row['prompt']!r} 没有要写出的文字"),
                Text(
                    'a shop with a sign that says "OPEN", or column = ...',
                    '例如 a sign that says "OPEN"，或 column = ...',
                ),
            )
    try:
        from rapidocr import RapidOCR  # type: ignore[import-not-found]
    except ImportError as error:
        raise not_installed(error) or error from None

    logging.getLogger("RapidOCR").setLevel(logging.ERROR)
    reader = RapidOCR()

    def call(rows: Rows) -> list[float]:
        texts = rows["prompts"] if table.column is None else rows[table.column]
        found = ["".join(reader(pixels(x)[..., ::-1]).txts or ()) for x in rows["images"]]
        return [likeness(wanted(t, table.column is None), read) for t, read in zip(texts, found)]

    return call


def wanted(text: Any, quoted: bool) -> str:
    """What is to be read: all of it, or what stands between the first double quotes."""
    if not quoted:
        return str(text if text is not None else "")
    found = re.search(r'"([^"]+)"|“([^”]+)”', str(text))
    return next(part for part in found.groups() if part) if found else ""


def bare(text: str) -> str:
    """Without spaces, in small letters."""
    return "".join(text.split()).lower()


def likeness(target: str, read: str) -> float:
    """1 where `read` holds `target`, else 1 - distance / length of the target, at least 0; both `bare`."""
    target, read = bare(target), bare(read)
    return 1.0 if target in read else max(0.0, 1 - distance(target, read) / len(target))


def distance(a: str, b: str) -> int:
    """Levenshtein's: insertions, deletions and exchanges of a letter."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]
