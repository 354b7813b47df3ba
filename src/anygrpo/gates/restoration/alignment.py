"""Whether the two pictures of a pair show the same thing at the same place."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from anygrpo.errors import DataError
from anygrpo.gates.restoration.photographs import Picture
from anygrpo.spoken import Text, say

log = logging.getLogger("anygrpo")
REACH = 16
"""Shifts that are looked for, in pixels each way."""
WINDOW = 384
"""Side of the middle that is compared."""
SURE, AHEAD = 0.3, 0.1
"""A shift is named where details agree there by more than `SURE` (correlation), and more than in place by `AHEAD`."""
STRANGERS = 0.1
"""Below this correlation of smoothed pictures, they are of two different things."""
FLAT = 0.01
SMALL = 16
"""Nothing is said of pictures with a side below it."""
SWAPPED, COLOURFUL = -0.5, 0.02
"""Red less blue of both pictures: a correlation below it says that one has the channels turned round; least spread."""
_FINE = set[int]()
"""Sets that were looked at in this process: every stage of a run builds its task."""


def agreement(clean: Tensor, degraded: Tensor) -> tuple[float, float, tuple[int, int]]:
    """Correlation of details in place, the highest within `REACH`, and its shift (down, right) of the degraded one.

    Args:
        clean, degraded: [3, H, W] of one size. Without detail in either, both correlations are 0.
    """
    a, b = (_details(_middle(x)) for x in (clean, degraded))
    if min(a.std(), b.std()) < FLAT / 2:
        return 0.0, 0.0, (0, 0)
    size = tuple(2 * n for n in a.shape)
    found = torch.fft.irfft2(torch.fft.rfft2(b, s=size) * torch.fft.rfft2(a, s=size).conj(), s=size)
    reach = min(REACH, *(n // 4 for n in a.shape))
    near = torch.roll(found, (reach, reach), (0, 1))[: 2 * reach + 1, : 2 * reach + 1] / (a.norm() * b.norm())
    best = int(near.argmax())
    down, right = best // near.shape[1] - reach, best % near.shape[1] - reach
    return float(near[reach, reach]), float(near.max()), (down, right)


def complaint(clean: Tensor, degraded: Tensor) -> str | None:
    """What is wrong with a pair, or None."""
    if min(clean.shape[1:]) < SMALL:
        return None
    if float(degraded.max() - degraded.min()) == 0 and float(clean.std()) > FLAT:
        return "is of one colour, and the clean picture is not"
    here, best, shift = agreement(clean, degraded)
    if best > SURE and best - here > AHEAD:
        place = f"{shift[0]:+d} down, {shift[1]:+d} right"
        return f"is shifted by {place} (details agree {best:.2f} there, {here:.2f} in place)"
    a, b = (F.avg_pool2d(_middle(x)[None], 8, ceil_mode=True).flatten() for x in (clean, degraded))
    if min(a.std(), b.std()) < FLAT or len(a) < 16:
        return None
    same = float(torch.corrcoef(torch.stack([a, b]))[0, 1])
    if same < STRANGERS and best < SURE:
        return f"shows two different things (correlation {same:.2f})"
    warm, other = (F.avg_pool2d(_middle(x[:1] - x[2:])[None], 8, ceil_mode=True).flatten() for x in (clean, degraded))
    if min(warm.std(), other.std()) > COLOURFUL:
        turned = float(torch.corrcoef(torch.stack([warm, other]))[0, 1])
        if turned < SWAPPED:
            return f"has red and blue exchanged (red less blue of both correlates by {turned:.2f})"
    return None


def check(pictures: list[Picture], scale: int, seconds: float = 20.0) -> None:
    """Look at pairs, spread over all, for about so many seconds.

    Raises:
        DataError: one is shifted, or of two different pictures.
    """
    pairs = [(p, i) for p in pictures for i in range(len(p.degraded))]
    key = hash(tuple((str(p.degraded[i]), _changed(p.degraded[i]), _changed(p.clean)) for p, i in pairs))
    if key in _FINE:
        return
    began, equal, seen = time.perf_counter(), 0, 0
    for seen, place in enumerate(sorted(range(len(pairs)), key=lambda i: (i * 0.6180339887) % 1), 1):
        picture, which = pairs[place]
        clean, degraded = picture.read(), picture.read(which)
        if scale > 1:
            clean = F.avg_pool2d(clean[None], scale)[0]
        equal += int(torch.equal(clean, degraded))
        wrong = complaint(clean, degraded)
        if wrong:
            raise DataError(
                Text(
                    f"pair {picture.name!r} ({picture.degraded[which]}) {wrong}",
                    f"图像对 {picture.name!r}（{picture.degraded[which]}）{wrong}",
                ),
                Text(
                    'mend the pair; if it is meant so, set aligned = "trust" for its set',
                    '请修正这一对；若本就如此，请对它所在的集合设 aligned = "trust"',
                ),
            )
        if time.perf_counter() - began > seconds:
            log.info(say("alignment: %d of %d pairs looked at", "对齐检查：看了 %d 对，共 %d 对"), seen, len(pairs))
            break
    if equal and equal == seen:
        raise DataError(
            Text(
                f"both pictures are equal in all {seen} pairs looked at, as {pictures[0].name!r}",
                f"所看的 {seen} 对图像中，两张都完全相同，如 {pictures[0].name!r}",
            ),
            Text("name the folder of degraded pictures", "请给出退化图像的文件夹"),
        )
    _FINE.add(key)


def _changed(source: Any) -> int:
    return source.stat().st_mtime_ns if isinstance(source, Path) else id(source)


def _middle(x: Tensor) -> Tensor:
    """Grey [h, w] of the middle."""
    h, w = x.shape[1:]
    y, z = max(0, (h - WINDOW) // 2), max(0, (w - WINDOW) // 2)
    return x[:, y : y + WINDOW, z : z + WINDOW].mean(0)


def _details(grey: Tensor) -> Tensor:
    smooth = F.avg_pool2d(F.pad(grey[None, None], (4, 4, 4, 4), mode="reflect"), 9, stride=1)[0, 0]
    fine = grey - smooth
    return fine - fine.mean()
