"""Clean pictures [3, H, W] in [0, 1]: photographs that ship with scikit-image and scikit-learn, or a folder."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from anygrpo.errors import ConfigError, DataError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp"}
SHIPPED = {
    "skimage": (
        "data",
        "astronaut.png brick.png camera.png cell.png chelsea.png coffee.png coins.png grass.png gravel.png "
        "hubble_deep_field.jpg ihc.png microaneurysms.png moon.png motorcycle_left.png motorcycle_right.png page.png "
        "retina.jpg rocket.jpg",
    ),
    "sklearn": ("datasets/images", "china.jpg flower.jpg"),
}
"""Photographs and micrographs in the installed wheels (nothing is downloaded). Left out: drawings, test patterns."""
SAME_SCENE = {"motorcycle_right": "motorcycle_left"}
"""Two views of one scene stay on one side of the split."""


@dataclass(frozen=True)
class Picture:
    """A named picture; `degraded` only where the user gave pairs."""

    name: str
    clean: Tensor
    degraded: Tensor | None = None


def read(path: Path, longest: int) -> Tensor:
    """A picture file as [3, H, W] in [0, 1], reduced (antialiased) to a longer side of `longest`; 0 keeps it."""
    from PIL import Image, UnidentifiedImageError

    try:
        pixels = np.array(Image.open(path).convert("RGB"), dtype=np.float32) / 255
    except (OSError, UnidentifiedImageError) as error:
        raise DataError(f"{path} cannot be read as a picture: {error}") from error
    x = torch.from_numpy(pixels).permute(2, 0, 1)
    factor = longest / max(x.shape[1:]) if longest else 1.0
    if factor >= 1:
        return x.contiguous()
    size = [max(16, round(side * factor)) for side in x.shape[1:]]
    x = F.interpolate(x[None], size=size, mode="bicubic", antialias=True, align_corners=False)[0].clamp(0, 1)
    return (x * 255).round() / 255


def shipped(longest: int) -> list[Picture]:
    """The photographs of the installed wheels.

    Raises:
        DataError: a package or a file is missing.
    """
    pictures = []
    for package, (folder, names) in SHIPPED.items():
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise DataError(f"{package} is not installed", f"pip install {package.replace('sk', 'scikit-')}")
        root = Path(next(iter(spec.submodule_search_locations))) / folder
        for name in names.split():
            if not (root / name).is_file():
                raise DataError(f"{root / name} is missing", "set task.folder to a folder of your own pictures")
            pictures.append(Picture(Path(name).stem, read(root / name, longest)))
    return pictures


def of_folder(clean: str, degraded: str | None, longest: int) -> list[Picture]:
    """Pictures of a folder, or pairs matched by file stem.

    Raises:
        DataError: fewer than two pictures, a file without a partner, or a pair of different sizes.
    """
    files = listed(clean)
    if degraded is None:
        return [Picture(stem, read(path, longest)) for stem, path in files.items()]
    others = listed(degraded)
    if lonely := sorted(files.keys() ^ others.keys()):
        raise DataError(f"{len(lonely)} files of {clean} and {degraded} have no partner: {', '.join(lonely[:5])}")
    pairs = [Picture(s, read(p, longest), read(others[s], longest)) for s, p in files.items()]
    for pair in pairs:
        if pair.degraded is not None and pair.clean.shape != pair.degraded.shape:
            sizes = f"{tuple(pair.clean.shape[1:])} and {tuple(pair.degraded.shape[1:])}"
            raise DataError(f"pair {pair.name!r} has sizes {sizes}")
    return pairs


def listed(folder: str) -> dict[str, Path]:
    """Picture files of a folder by stem, sorted."""
    if not Path(folder).is_dir():
        raise DataError(f"folder {folder} does not exist")
    files = sorted(p for p in Path(folder).iterdir() if p.suffix.lower() in SUFFIXES)
    if len({p.stem for p in files}) != len(files):
        raise DataError(f"{folder} has two pictures of one name")
    if len(files) < 2:
        raise DataError(f"{folder} has {len(files)} pictures; at least 2 are needed, one to train and one to hold out")
    return {p.stem: p for p in files}


def split(pictures: list[Picture], share: float, seed: int) -> tuple[list[Picture], list[Picture]]:
    """Training and held-out pictures, whole scenes on one side, by a permutation drawn from `seed`.

    Raises:
        ConfigError: one side would be empty.
    """
    scenes = sorted({SAME_SCENE.get(p.name, p.name) for p in pictures})
    order = torch.randperm(len(scenes), generator=torch.Generator().manual_seed(seed)).tolist()
    held = {scenes[i] for i in order[: max(1, round(share * len(scenes)))]}
    inside = lambda p: SAME_SCENE.get(p.name, p.name) in held  # noqa: E731
    train, test = [p for p in pictures if not inside(p)], [p for p in pictures if inside(p)]
    if not train:
        raise ConfigError(f"held_out_share = {share} of {len(scenes)} pictures leaves none to train on")
    return train, test
