"""Pictures for people: PNG files, grids, thumbnails inside JSON."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anygrpo.core.lettering import write
from anygrpo.core.thumbnails import thumbnail

LABEL, HEAD = 18, 56
SMALLEST, LARGEST = 96, 256


def to_image(picture: Tensor) -> Any:
    """A Pillow image of [1 or 3, H, W] in [0, 1]; of a video [F, C, H, W] its middle frame."""
    from PIL import Image

    if picture.dim() == 4:
        picture = picture[len(picture) // 2]
    pixels = (picture.detach().float().cpu().nan_to_num().clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    return Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).convert("RGB")


def fitted(picture: Tensor, smallest: int, largest: int) -> Any:
    """The picture made at least `smallest` wide (by whole factors, without smoothing) and at most `largest`."""
    image = to_image(picture)
    if image.width < smallest:
        factor = -(-smallest // image.width)
        return image.resize((image.width * factor, image.height * factor), 0)
    image.thumbnail((largest, largest))
    return image


def grid(rows: list[list[Tensor]], labels: list[str], heads: tuple[str, ...] = ()) -> Any:
    """Rows of pictures as one image, with a label above each column (a line of it a line) and a word before each row.

    Args:
        heads: one a row, or none at all.
    """
    from PIL import Image, ImageDraw

    cells = [[fitted(x, SMALLEST, LARGEST) for x in row] for row in rows]
    width, height = cells[0][0].size
    left, top = HEAD if heads else 0, LABEL * (1 + max(label.count("\n") for label in labels))
    sheet = Image.new("RGB", (left + (width + 4) * len(labels), top + (height + 4) * len(rows)), "white")
    draw = ImageDraw.Draw(sheet)
    for i, label in enumerate(labels):
        for line, words in enumerate(label.split("\n")):
            write(draw, (left + i * (width + 4) + 2, 3 + line * LABEL), words, width)
        for j, row in enumerate(cells):
            sheet.paste(row[i], (left + i * (width + 4), top + j * (height + 4)))
    for j, word in enumerate(heads):
        write(draw, (2, top + j * (height + 4) + height // 2 - 6), word, HEAD - 4)
    return sheet


def inline(picture: Tensor) -> str:
    """A thumbnail as a data URI, for files of JSON that a page shows."""
    return thumbnail(to_image(picture))


def is_picture(output: Any) -> bool:
    """Whether an output of a policy is a picture or video that can be shown."""
    return isinstance(output, torch.Tensor) and output.dim() in (3, 4) and output.shape[-3] in (1, 3)
