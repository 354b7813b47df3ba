"""Small pictures inside lines of JSON: what a page shows of prompts and outputs that are pictures. No torch."""

from __future__ import annotations

import base64
import io
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

SHOWN = 8
"""Rows of a step or an evaluation that bear thumbnails: as many as the page shows."""
LARGEST = 128
"""Pixels of the longer side."""
_URI = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=]+")


def data_url(value: Any) -> str:
    """A picture's bytes or a PIL image as a text that JSON holds; empty of anything else."""
    if hasattr(value, "save") and hasattr(value, "convert"):
        held = io.BytesIO()
        value.save(held, "PNG")
        value = held.getvalue()
    return "data:image/*;base64," + base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else ""


def thumbnail(image: Any) -> str:
    """A PIL image, not above `LARGEST` pixels a side, as a data URI of PNG."""
    image = image.copy()
    image.thumbnail((LARGEST, LARGEST))
    held = io.BytesIO()
    image.save(held, "PNG")
    return "data:image/png;base64," + base64.b64encode(held.getvalue()).decode()


def of_tensor(picture: Tensor) -> str:
    """The same of a [1 or 3, H, W] in [0, 1]; numbers that are not finite are black."""
    from PIL import Image

    numbers = (picture.detach().float().nan_to_num(0.0).clamp(0, 1) * 255).round().byte().cpu()
    pixels = numbers.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy()
    return thumbnail(Image.fromarray(pixels))


def looks_like_a_picture(output: Any) -> bool:
    """[1 or 3, H, W] with sides that a person can see something on."""
    shape = tuple(getattr(output, "shape", ()))
    return hasattr(output, "detach") and len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= 8


def is_thumbnail(text: Any) -> bool:
    """Whether a text is a picture that a page may embed, whoever wrote it."""
    return isinstance(text, str) and _URI.fullmatch(text) is not None
