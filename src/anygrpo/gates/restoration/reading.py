"""Picture files as numbers, read right or refused by name.

What viewers and converters do in silence is an error here: 16 bits cut to 8 or to white, a picture lying on its side,
one page of many, colours under a transparent mask, a print's inks, numbers beyond [0, 1].
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anygrpo.errors import DataError
from anygrpo.gates.restoration.tiff import ORIENTATION, Pixels, is_tiff, read_tiff, upright
from anygrpo.spoken import Text

log = logging.getLogger("anygrpo")
_DARK = set[Path]()
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}
TIFF = {".tif", ".tiff"}
GREY, COLOUR = {"1", "L"}, {"P", "RGB", "RGBA", "LA", "PA"}
SIXTEEN = {"RGB;16B": 3, "RGBA;16B": 4}
"""What Pillow calls the stored numbers of 16-bit PNGs that it would cut to 8 bits -> channels."""
_HEAD = re.compile(rb"P([2356])" + rb"(?:\s|#[^\n]*\n)+(\d+)" * 3 + rb"\s")
"""Of a netpbm file: its kind (2, 3 are text; 3, 6 colours), width, height and maximum; comments between them."""


def load(path: Path) -> Pixels:
    """A picture file.

    Raises:
        DataError: not a picture, or one whose numbers can't be read as they are: what it is, and how to convert it.
    """
    try:
        return _told(path, read_tiff(path, _other) if is_tiff(path) else _netpbm(path) or _other(path))
    except DataError:
        raise
    except Exception as error:  # a broken file can raise anything
        raise DataError(
            Text(f"{path} cannot be read as a picture: {error}", f"{path} 不能作为图像读取：{error}")
        ) from error


def read(path: Path, longest: int = 0) -> Tensor:
    """A picture as [3, H, W] in [0, 1], reduced (antialiased, then 8 bits) to a longer side of `longest`; 0 keeps it.

    Raises:
        DataError: as `load`; also for one that is transparent somewhere.
    """
    pixels = load(path)
    if pixels.transparent:
        raise DataError(
            Text(
                f"{path} is transparent in places: the colours there mean nothing",
                f"{path} 有透明之处：那里的颜色没有意义",
            ),
            Text(
                "flatten it onto a background (ImageMagick: -background white -flatten)",
                "请合成到背景上（ImageMagick：-background white -flatten）",
            ),
        )
    x = pixels.tensor()
    size = reduced(x.shape[-2], x.shape[-1], longest)
    if size == tuple(x.shape[-2:]):
        return x
    x = torch.nn.functional.interpolate(x[None], size=size, mode="bicubic", antialias=True, align_corners=False)[0]
    return (x.clamp(0, 1) * 255).round() / 255


def reduced(height: int, width: int, longest: int) -> tuple[int, int]:
    """Size with a longer side of `longest`; never larger, never a side below 16."""
    factor = longest / max(height, width) if longest else 1.0
    return (height, width) if factor >= 1 else (max(16, round(height * factor)), max(16, round(width * factor)))


def size_of(path: Path) -> tuple[int, int]:
    """(height, width) as `load` would give them, from the file's header.

    Raises:
        DataError: not a picture.
    """
    from PIL import Image

    try:
        if is_tiff(path):
            import tifffile

            with tifffile.TiffFile(path) as file:
                page: Any = file.pages[0]
                height, width, tag = page.imagelength, page.imagewidth, page.tags.get(ORIENTATION)
                turned = tag is not None and tag.value in (5, 6, 7, 8)
        else:
            with Image.open(path) as image:
                width, height = image.size
                # of a PNG without EXIF in its head, Pillow would decode all to look behind it
                told = image.format != "PNG" or {"exif", "Raw profile type exif"} & image.info.keys()
                turned = bool(told) and image.getexif().get(ORIENTATION, 1) in (5, 6, 7, 8)
    except DataError:
        raise
    except Exception as error:
        raise DataError(
            Text(f"{path} cannot be read as a picture: {error}", f"{path} 不能作为图像读取：{error}")
        ) from error
    return (width, height) if turned else (height, width)


def _told(path: Path, pixels: Pixels) -> Pixels:
    """Warns once of 16 bits of which a camera or microscope filled ten, twelve or fourteen."""
    top = int(pixels.values.max(initial=0)) if pixels.bits == 16 else 65535
    filled = next((bits for bits in (10, 12, 14) if 2 ** (bits - 1) <= top < 2**bits), 0)
    if filled and not _DARK:
        _DARK.add(path)
        times = 2 ** (16 - filled)
        told = Text(
            f"{path} has 16 bits and no number above {top}; white is taken to be 65535. If it holds {filled} bits, "
            f"multiply by {times} first",
            f"{path} 为 16 位，但没有大于 {top} 的数；白色按 65535 计。若实为 {filled} 位，请先乘以 {times}",
        )
        log.warning("%s", told.said())
    return pixels


def _netpbm(path: Path) -> Pixels | None:
    """A PGM or PPM of more than 8 bits, which Pillow cuts to 8 or to a type of its own; None for others."""
    with path.open("rb") as file:
        if re.fullmatch(rb"P[2356]", file.read(2)) is None:
            return None
        whole = path.read_bytes()
    head = _HEAD.match(whole)
    if head is None or not 256 <= (top := int(head[4])) <= 65535:
        return None
    shape = int(head[3]), int(head[2]), 3 if head[1] in b"36" else 1
    count = shape[0] * shape[1] * shape[2]
    if head[1] in b"56":
        x = np.frombuffer(whole[head.end() :][: 2 * count], ">u2").reshape(shape)
    else:
        words = re.sub(rb"#[^\n]*", b"", whole[head.end() :]).split()[:count]
        x = np.array(words).astype(np.int64).reshape(shape)
    if int(x.max(initial=0)) > top or int(x.min(initial=0)) < 0:
        raise DataError(
            Text(
                f"{path} holds numbers outside of 0 to its maximum {top}",
                f"{path} 中有不在 0 至其最大值 {top} 之间的数",
            )
        )
    return Pixels(np.rint(x * (65535 / top)).astype(np.uint16), None, 16, {})


def _other(path: Path) -> Pixels:
    from PIL import Image, ImageOps

    with Image.open(path) as image:
        frames = getattr(image, "n_frames", 1)
        if frames > 1 and image.format != "MPO":  # a phone's second frame is a thumbnail
            raise DataError(
                Text(f"{path} holds {frames} pictures", f"{path} 中有 {frames} 张图像"),
                Text("save the one that is meant", "请只存需要的那一张"),
            )
        stored = _stored(image)
        info = {key: image.info[key] for key in ("icc_profile",) if image.info.get(key)}
        if stored == "LA;16B" or (stored.endswith(";16B") and "transparency" in image.info):
            raise DataError(
                Text(
                    f"{path} has 16 bits and a kind of transparency that Pillow cuts to 8",
                    f"{path} 为 16 位，且透明方式会被 Pillow 截成 8 位",
                ),
                Text("save it as TIFF", "请存为 TIFF"),
            )
        if stored in SIXTEEN:
            return _sixteen(path, stored, image.getexif(), info)
        image = ImageOps.exif_transpose(image)
        info |= _exif(image.getexif())
        if image.mode.startswith("I;16"):
            return Pixels(np.asarray(image).astype(np.uint16)[..., None], None, 16, info)
        return _eight(path, image, info)


def _eight(path: Path, image: Any, info: dict[str, bytes]) -> Pixels:
    if image.mode in GREY and "transparency" not in image.info:
        return Pixels(np.asarray(image.convert("L"))[..., None], None, 8, info)
    if image.mode not in GREY | COLOUR:
        raise DataError(
            Text(
                f"{path} has colours of kind {image.mode!r}, which have no one meaning as red, "
                "green and blue in [0, 1]",
                f"{path} 的颜色类型为 {image.mode!r}，不能唯一地表示为 [0, 1] 中的红、绿、蓝",
            ),
            Text(
                "convert it to 8 or 16 bits of grey or RGB with its profile",
                "请按它的色彩配置转换为 8 或 16 位灰度或 RGB",
            ),
        )
    if image.mode == "LA":
        whole = np.asarray(image)
        return Pixels(whole[..., :1], whole[..., 1], 8, info)
    if image.mode in ("RGBA", "PA") or "transparency" in image.info:
        whole = np.asarray(image.convert("RGBA"))
        return Pixels(whole[..., :3], whole[..., 3], 8, info)
    return Pixels(np.asarray(image.convert("RGB")), None, 8, info)


def _stored(image: Any) -> str:
    """Pillow's name for the numbers in the file ("RGB;16B"), "" where it does not say."""
    tile = image.tile[0] if image.tile else None
    args = tile[3] if tile is not None else ""
    return args if isinstance(args, str) else str(args[0]) if args else ""


def _exif(exif: Any) -> dict[str, bytes]:
    """What a copy that lies upright should carry of it."""
    exif.pop(ORIENTATION, None)
    return {"exif": exif.tobytes()} if len(exif) else {}


def _sixteen(path: Path, stored: str, exif: Any, info: dict[str, bytes]) -> Pixels:
    """A 16-bit colour PNG. Pillow keeps one byte of each number: it is decoded twice, for the high and the low one."""
    high, low = (_decoded(path, stored[:-1] + end) for end in ("B", "L"))
    whole = upright(high.astype(np.uint16) << 8 | low, exif.get(ORIENTATION, 1))
    return Pixels(whole[..., :3], whole[..., 3] if whole.shape[2] == 4 else None, 16, info | _exif(exif))


def _decoded(path: Path, numbers: str) -> np.ndarray[Any, Any]:
    from PIL import Image

    with Image.open(path) as image:
        image.tile = [tile._replace(args=numbers) for tile in image.tile]
        return np.asarray(image)
