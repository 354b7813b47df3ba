"""Before/after strips: input | before | after | target, one row a picture, with these words over the columns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.lettering import label, write
from anygrpo.gates.restoration.quality import as_saved, psnr

GAP = 4
SMALLEST, HEAD = 96, 18
"""Narrower pictures are shown larger, by a whole factor and without smoothing; height of the words, in pixels."""


def strip(pictures: list[Tensor]) -> Tensor:
    """Pictures [3, H, W] of one size side by side with white gaps."""
    height = pictures[0].shape[1]
    gap = torch.ones(3, height, GAP)
    row: list[Tensor] = []
    for picture in pictures:
        row += [as_saved(picture.cpu()), gap]
    return torch.cat(row[:-1], 2)


def larger(picture: Tensor) -> Tensor:
    """[3, H, W] with every pixel repeated until the picture is wide enough for a word over it."""
    factor = -(-SMALLEST // picture.shape[2])
    return picture.repeat_interleave(factor, 1).repeat_interleave(factor, 2)


def heads(width: int) -> Tensor:
    """[3, HEAD, 4 width + 3 GAP]: what each column of pictures so wide is."""
    import numpy as np
    from PIL import Image, ImageDraw

    sheet = Image.new("RGB", (4 * width + 3 * GAP, HEAD), "white")
    draw = ImageDraw.Draw(sheet)
    words = label("input", "输入"), label("before", "训练前"), label("after", "训练后"), label("target", "目标")
    for i, word in enumerate(words):
        write(draw, (i * (width + GAP) + 2, 3), word, width)
    return torch.from_numpy(np.array(sheet)).permute(2, 0, 1).float() / 255


def write_strips(
    prompts: list[dict[str, Any]], before: list[list[Tensor]], after: list[list[Tensor]], folder: str | Path
) -> list[Path]:
    """One PNG per degradation (a row for each of its first four pictures), the change in PSNR in the file's name."""
    from PIL import Image

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    by_name: dict[str, list[int]] = {}
    for i, prompt in enumerate(prompts):
        by_name.setdefault(prompt["degradation"], []).append(i)
    paths = []
    for name, places in by_name.items():
        places = places[:4]
        rows: list[Tensor] = []
        for at, i in enumerate(places):
            shown = [larger(x.cpu()) for x in (prompts[i]["degraded"], before[i][0], after[i][0], prompts[i]["clean"])]
            made = strip(shown)
            if at == 0 or made.shape[2] != rows[-1].shape[2]:
                rows.append(heads(shown[0].shape[2]))
            rows.append(made)
        width = max(r.shape[2] for r in rows)
        rows = [torch.nn.functional.pad(r, (0, width - r.shape[2], 0, GAP), value=1.0) for r in rows]
        gains = [
            float((psnr(as_saved(after[i][0].cpu())[None], c) - psnr(as_saved(before[i][0].cpu())[None], c))[0])
            for i in places
            for c in [prompts[i]["clean"][None]]
        ]
        name = re.sub(r"[^\w .-]", "_", name).strip(". ") or "pairs"  # a set may be called anything
        path = folder / f"{name}_{sum(gains) / len(gains):+.2f}dB.png"
        sheet = (torch.cat(rows, 1) * 255).round().byte().permute(1, 2, 0).numpy()
        Image.fromarray(sheet).save(path)
        paths.append(path)
        write_slider(prompts[places[0]]["degraded"], after[places[0]][0], folder / name)
    return paths


def write_slider(degraded: Tensor, after: Tensor, folder: Path) -> None:
    """The two pictures that report.html lays over each other: 1_input.png, 2_after.png, where they are of one size."""
    from PIL import Image

    if degraded.shape != after.shape or degraded.shape[0] != 3:
        return
    folder.mkdir(exist_ok=True)
    for name, x in (("1_input.png", degraded), ("2_after.png", after)):
        Image.fromarray((as_saved(x.cpu()) * 255).round().byte().permute(1, 2, 0).numpy()).save(folder / name)
