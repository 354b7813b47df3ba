"""Pictures into files with the bits, the transparency, the colour profile and the EXIF of those they were made from."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anygrpo.gates.restoration.reading import TIFF, Pixels

TOPS = {8: 255.0, 16: 65535.0, 32: 1.0}
TYPES = {8: np.uint8, 16: np.uint16, 32: np.float32}


def like(x: Tensor, source: Pixels) -> Pixels:
    """[3, H, W] as pixels of the kind of `source`: its bits, grey where it was grey, its transparency at this size."""
    values = x.detach().float().cpu().nan_to_num().clamp(0, 1)
    values = values.mean(0, keepdim=True) if source.values.shape[2] == 1 else values
    alpha = source.alpha
    if alpha is not None and alpha.shape != x.shape[1:]:
        wide = torch.from_numpy(alpha.astype(np.float32))[None, None]
        wide = torch.nn.functional.interpolate(wide, size=x.shape[1:], mode="bilinear", align_corners=False)[0, 0]
        alpha = (wide if source.bits == 32 else wide.round()).numpy().astype(TYPES[source.bits])
    scaled = values.permute(1, 2, 0) * TOPS[source.bits]
    numbers = (scaled if source.bits == 32 else scaled.round()).numpy().astype(TYPES[source.bits])
    return Pixels(numbers, alpha, source.bits, source.info)


def suffix_for(path: Path, bits: int) -> str:
    """Of the file that a picture made of `path` goes to: TIFF stays, all else becomes PNG, which loses nothing."""
    return path.suffix if path.suffix.lower() in TIFF else ".tif" if bits == 32 else ".png"


def save(pixels: Pixels, path: Path) -> None:
    """Write .png or .tif; whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        if path.suffix.lower() in TIFF:
            _tiff(pixels, part)
        else:
            part.write_bytes(_png(pixels))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _channels(pixels: Pixels) -> np.ndarray[Any, Any]:
    return pixels.values if pixels.alpha is None else np.concatenate([pixels.values, pixels.alpha[..., None]], 2)


def _tiff(pixels: Pixels, path: Path) -> None:
    import tifffile

    x = _channels(pixels)
    grey = pixels.values.shape[2] == 1
    more: dict[str, Any] = {} if pixels.alpha is None else {"extrasamples": ["unassalpha"]}
    profile = pixels.info.get("icc_profile")
    tifffile.imwrite(
        path,
        x[..., 0] if x.shape[2] == 1 else x,
        photometric="minisblack" if grey else "rgb",
        planarconfig=None if x.shape[2] == 1 else "contig",
        compression="zlib",
        iccprofile=profile,
        metadata=None,
        **more,
    )


def _png(pixels: Pixels) -> bytes:
    """A PNG by its definition (Pillow writes no 16-bit colour): head, profile, EXIF, rows each less the one above."""
    x = _channels(pixels)
    height, width, channels = x.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    rows = np.ascontiguousarray(x.astype(">u2" if pixels.bits == 16 else np.uint8)).view(np.uint8).reshape(height, -1)
    less = rows.copy()
    less[1:] -= rows[:-1]
    data = np.concatenate([np.full((height, 1), 2, np.uint8), less], 1).tobytes()  # 2: "up"
    out = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, pixels.bits, kind, 0, 0, 0))
    if profile := pixels.info.get("icc_profile"):
        out += _chunk(b"iCCP", b"profile\0\0" + zlib.compress(profile))
    if exif := pixels.info.get("exif"):
        out += _chunk(b"eXIf", exif.removeprefix(b"Exif\0\0"))
    return out + _chunk(b"IDAT", zlib.compress(data, 6)) + _chunk(b"IEND", b"")


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
