"""Before/after strips: degraded | before | after | clean, one row a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.gates.restoration.quality import as_saved, psnr

GAP = 4


def strip(pictures: list[Tensor]) -> Tensor:
    """Pictures [3, H, W] of one size side by side with white gaps."""
    height = pictures[0].shape[1]
    gap = torch.ones(3, height, GAP)
    row: list[Tensor] = []
    for picture in pictures:
        row += [as_saved(picture.cpu()), gap]
    return torch.cat(row[:-1], 2)


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
        rows = [strip([prompts[i]["degraded"], before[i][0], after[i][0], prompts[i]["clean"]]) for i in places]
        width = max(r.shape[2] for r in rows)
        rows = [torch.nn.functional.pad(r, (0, width - r.shape[2], 0, GAP), value=1.0) for r in rows]
        gains = [
            float((psnr(as_saved(after[i][0].cpu())[None], c) - psnr(as_saved(before[i][0].cpu())[None], c))[0])
            for i in places
            for c in [prompts[i]["clean"][None]]
        ]
        path = folder / f"{name}_{sum(gains) / len(gains):+.2f}dB.png"
        sheet = (torch.cat(rows, 1) * 255).round().byte().permute(1, 2, 0).numpy()
        Image.fromarray(sheet).save(path)
        paths.append(path)
    return paths
