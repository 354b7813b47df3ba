"""Picture files as numbers, read right or refused by name.

What viewers and converters do in silence is an error here: 16 bits cut to 8 or to white, a picture lying on its side,
one page of many, colours under a transparent mask, a print's inks, numbers beyond [0, 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anygrpo.errors import DataError
from anygrpo.spoken import Text

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}
TIFF = {".tif", ".tiff"}
ORIENTATION = 0x0112
GREY, COLOUR = {"1", "L"}, {"P", "RGB", "RGBA", "LA", "PA"}
SIXTEEN = {"RGB;16B": 3, "RGBA;16B": 4}
"""What Pillow calls the stored numbers of 16-bit PNGs that it would cut to 8 bits -> channels."""


@dataclass(frozen=True)
class Pixels:
    """A picture as it lies in its file, turned upright.

    Attributes:
        values: [H, W, c] uint8, uint16 or float32; c is 1 or 3.
        alpha: [H, W] of the same type, or None.
        bits: 8, 16, or 32 (float in [0, 1]).
        info: what a copy should carry: "icc_profile" and "exif" bytes where there are any.
    """

    values: np.ndarray[Any, Any]
    alpha: np.ndarray[Any, Any] | None
    bits: int
    info: dict[str, bytes]

    def tensor(self) -> Tensor:
        """[3, H, W] float32 in [0, 1]; grey in all three."""
        top = {8: 255.0, 16: 65535.0}.get(self.bits, 1.0)
        x = torch.from_numpy(self.values.astype(np.float32) / np.float32(top)).permute(2, 0, 1)
        return x.expand(3, -1, -1).contiguous()

    @property
    def transparent(self) -> bool:
        return self.alpha is not None and bool((self.alpha < {8: 255, 16: 65535}.get(self.bits, 1)).any())


def load(path: Path) -> Pixels:
    """A picture file.

    Raises:
        DataError: not a picture, or one whose numbers can't be read as they are: what it is, and how to convert it.
    """
    try:
        return _tiff(path) if path.suffix.lower() in TIFF else _other(path)
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
        if path.suffix.lower() in TIFF:
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
        if image.mode == "I" and image.format == "PPM":  # Pillow scales any maximum to 65535
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
    whole = _upright(high.astype(np.uint16) << 8 | low, exif.get(ORIENTATION, 1))
    return Pixels(whole[..., :3], whole[..., 3] if whole.shape[2] == 4 else None, 16, info | _exif(exif))


def _decoded(path: Path, numbers: str) -> np.ndarray[Any, Any]:
    from PIL import Image

    with Image.open(path) as image:
        image.tile = [tile._replace(args=numbers) for tile in image.tile]
        return np.asarray(image)


def _upright(x: np.ndarray[Any, Any], orientation: int) -> np.ndarray[Any, Any]:
    """[H, W, ...] turned as EXIF's orientation 1..8 says."""
    if orientation in (5, 6, 7, 8):
        x = x.swapaxes(0, 1)
    rows = {3: -1, 4: -1, 7: -1, 8: -1}.get(orientation, 1)
    columns = {2: -1, 3: -1, 6: -1, 7: -1}.get(orientation, 1)
    return np.ascontiguousarray(x[::rows, ::columns])


def _tiff(path: Path) -> Pixels:
    """A TIFF, whose numbers tifffile gives as they are."""
    import tifffile

    with tifffile.TiffFile(path) as file:
        if len(file.pages) != 1:
            raise DataError(
                Text(f"{path} holds {len(file.pages)} pictures", f"{path} 中有 {len(file.pages)} 张图像"),
                Text("save the one that is meant", "请只存需要的那一张"),
            )
        page: Any = file.pages[0]
        kind, extra, orientation = page.photometric.name, len(page.extrasamples), page.tags.get(ORIENTATION)
        profile = page.tags.get(34675)
        if kind not in ("MINISBLACK", "MINISWHITE", "RGB", "YCBCR"):
            raise DataError(
                Text(f"{path} has colours of kind {kind}", f"{path} 的颜色类型为 {kind}"),
                Text("convert it to grey or RGB", "请转换为灰度或 RGB"),
            )
        x = page.asarray()
    if page.planarconfig == 2 and x.ndim == 3:  # colours one after another
        x = np.moveaxis(x, 0, -1)
    x = _upright(x if x.ndim == 3 else x[..., None], orientation.value if orientation is not None else 1)
    x, bits = _known_numbers(path, x)
    top = {8: 255, 16: 65535}.get(bits, 1)
    x = (top - x).astype(x.dtype) if kind == "MINISWHITE" else x
    colours = x.shape[2] - extra
    if colours not in (1, 3) or extra > 1:
        raise DataError(
            Text(f"{path} has {x.shape[2]} channels", f"{path} 有 {x.shape[2]} 个通道"),
            Text(
                "save it with one or three, and at most an alpha beside", "请存为一个或三个通道，至多再加一个透明通道"
            ),
        )
    info = {"icc_profile": bytes(profile.value)} if profile is not None else {}
    return Pixels(x[..., :colours], x[..., colours] if extra else None, bits, info)


def _known_numbers(path: Path, x: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], int]:
    if x.dtype == np.uint8:
        return x, 8
    if x.dtype == np.uint16:
        return x, 16
    if x.dtype == bool:
        return x.astype(np.uint8) * 255, 8
    if x.dtype.kind != "f":
        raise DataError(
            Text(
                f"{path} holds numbers of type {x.dtype}, whose white is not known",
                f"{path} 的数值类型为 {x.dtype}，不知道它的白色是多少",
            ),
            Text("save 8 or 16 bits", "请存为 8 或 16 位"),
        )
    low, high = float(x.min()), float(x.max())
    if not (low >= 0 and high <= 1):  # also where one is not a number
        raise DataError(
            Text(
                f"{path} holds floats from {low:g} to {high:g}, not in [0, 1]",
                f"{path} 的浮点数从 {low:g} 到 {high:g}，不在 [0, 1] 中",
            ),
            Text("scale it, so that white is 1", "请缩放，使白色为 1"),
        )
    return x.astype(np.float32), 32
