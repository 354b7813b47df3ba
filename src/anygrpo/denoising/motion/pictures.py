"""Skeleton strips and animations, drawn with Pillow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.lettering import write

Places = dict[str, Tensor]
Bones = tuple[tuple[str, str], ...]

POSES = 10
CELL_WIDTH, CELL_HEIGHT, METRE = 110, 200, 80
LEFT, RIGHT, TRUNK, FLOOR = (38, 98, 176), (204, 92, 28), (70, 70, 70), (205, 205, 205)


def root(places: Places) -> Tensor:
    """[L, 3] of the pelvis; of the first joint where joints have numbers."""
    return places["pelvis"] if "pelvis" in places else next(iter(places.values()))


def draw(title: str, motions: dict[str, Places], bones: Bones, fps: float, stem: Path) -> list[Path]:
    """`stem`.png: one row a motion, poses evenly spaced in time; `stem`.gif: the motions side by side, in real time.

    Args:
        motions: label -> {joint: [F, 3]}.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    strip, gif = stem.with_suffix(".png"), stem.with_suffix(".gif")
    _strip(title, motions, bones).save(strip)
    frames = _frames(title, motions, bones)
    frames[0].save(gif, save_all=True, append_images=frames[1:], duration=round(1000 / fps), loop=0)
    return [strip, gif]


def _project(places: Places, frame: int) -> dict[str, tuple[float, float]]:
    """Seen from the side, a little turned and centred on the pelvis: pixels right of the cell's middle, up from the
    floor."""
    centre = root(places)[frame]
    out = {}
    for joint, track in places.items():
        x, y, z = (track[frame] - centre * torch.tensor([1.0, 0.0, 1.0])).tolist()
        out[joint] = ((0.87 * x + 0.5 * z) * METRE, (y + 0.08 * (z - x)) * METRE)
    return out


def _skeleton(canvas: Any, places: Places, bones: Bones, frame: int, left: int, floor: int) -> None:
    points = _project(places, frame)
    at = {j: (left + CELL_WIDTH / 2 + x, floor - y) for j, (x, y) in points.items()}
    canvas.line([(left, floor), (left + CELL_WIDTH, floor)], fill=FLOOR, width=1)
    for a, b in bones:
        colour = LEFT if b.startswith("l_") else RIGHT if b.startswith("r_") else TRUNK
        canvas.line([at[a], at[b]], fill=colour, width=3)
    top = next((j for j in ("head", "neck") if j in at), None)  # joints by number have none
    if top is not None:
        x, y = at[top]
        canvas.ellipse([x - 6, y - 14, x + 6, y - 2], outline=TRUNK, width=2)


def _canvas(width: int, height: int) -> tuple[Any, Any]:
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (width, height), "white")
    return image, ImageDraw.Draw(image)


def _strip(title: str, motions: dict[str, Places], bones: Bones) -> Any:
    image, canvas = _canvas(70 + POSES * CELL_WIDTH, 24 + CELL_HEIGHT * len(motions))
    write(canvas, (8, 6), title)
    for row, (label, places) in enumerate(motions.items()):
        floor = 24 + CELL_HEIGHT * (row + 1) - 24
        write(canvas, (8, floor - CELL_HEIGHT // 2), label)
        count = len(root(places))
        for i in range(POSES):
            _skeleton(canvas, places, bones, round(i * (count - 1) / (POSES - 1)), 70 + i * CELL_WIDTH, floor)
    return image


def _frames(title: str, motions: dict[str, Places], bones: Bones) -> list[Any]:
    width, images = 2 * CELL_WIDTH, []
    longest = max(len(root(p)) for p in motions.values())
    for frame in range(longest):
        image, canvas = _canvas(width * len(motions), CELL_HEIGHT + 40)
        write(canvas, (8, 6), title)
        for i, (label, places) in enumerate(motions.items()):
            write(canvas, (i * width + 8, 22), label)
            now = min(frame, len(root(places)) - 1)
            _skeleton(canvas, places, bones, now, i * width + CELL_WIDTH // 2, CELL_HEIGHT + 16)
        images.append(image)
    return images
