"""TIFF files, whose numbers tifffile gives as they are; and what a picture file holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anygrpo.errors import DataError
from anygrpo.spoken import Text

ORIENTATION = 0x0112


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


def is_tiff(path: Path) -> bool:
    """By its first bytes: names lie, and Pillow would cut a TIFF's 16 bits to 8."""
    with path.open("rb") as file:
        return file.read(4) in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def upright(x: np.ndarray[Any, Any], orientation: int) -> np.ndarray[Any, Any]:
    """[H, W, ...] turned as EXIF's orientation 1..8 says."""
    if orientation in (5, 6, 7, 8):
        x = x.swapaxes(0, 1)
    rows = {3: -1, 4: -1, 7: -1, 8: -1}.get(orientation, 1)
    columns = {2: -1, 3: -1, 6: -1, 7: -1}.get(orientation, 1)
    return np.ascontiguousarray(x[::rows, ::columns])


def read_tiff(path: Path, other: Callable[[Path], Pixels]) -> Pixels:
    """A TIFF; `other` reads what tifffile does not.

    Raises:
        DataError: several pictures, other colours than grey and RGB, or numbers whose white is not known.
    """
    import tifffile

    with tifffile.TiffFile(path) as file:
        if len(file.pages) != 1:
            raise DataError(
                Text(f"{path} holds {len(file.pages)} pictures", f"{path} 中有 {len(file.pages)} 张图像"),
                Text("save the one that is meant", "请只存需要的那一张"),
            )
        page: Any = file.pages[0]
        few = page.bitspersample <= 8 or (page.bitspersample == 16 and page.samplesperpixel == 1)
        if few and (page.photometric.name in ("PALETTE", "YCBCR") or _packed(page)):
            return other(path)  # Pillow knows these colours, and packings for which tifffile wants a further package
        kind, extra, orientation = page.photometric.name, len(page.extrasamples), page.tags.get(ORIENTATION)
        profile = page.tags.get(34675)
        if kind not in ("MINISBLACK", "MINISWHITE", "RGB"):
            raise DataError(
                Text(f"{path} has colours of kind {kind}", f"{path} 的颜色类型为 {kind}"),
                Text("convert it to grey or RGB", "请转换为灰度或 RGB"),
            )
        if _packed(page):
            raise DataError(
                Text(
                    f"{path} is packed by {page.compression.name}, which tifffile reads with a further package",
                    f"{path} 用 {page.compression.name} 压缩，tifffile 需要另一个包才能读取",
                ),
                Text("pip install imagecodecs, or save it uncompressed", "pip install imagecodecs，或不压缩保存"),
            )
        x = page.asarray()
    if page.planarconfig == 2 and x.ndim == 3:  # colours one after another
        x = np.moveaxis(x, 0, -1)
    x = upright(x if x.ndim == 3 else x[..., None], orientation.value if orientation is not None else 1)
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


def _packed(page: Any) -> bool:
    """Of a compression that tifffile leaves to imagecodecs, which is not there."""
    return page.compression.name not in ("NONE", "ADOBE_DEFLATE", "DEFLATE", "LZMA") and not find_spec("imagecodecs")


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
