"""Photographs that nobody tuned on: fetched from Debian's wallpaper packages, cut, split by photograph, opened once.

    python scripts/photographs.py fetch --to data/photographs
    python scripts/photographs.py open --to data/photographs --weights runs/a/checkpoints/best/policy.safetensors ...

`fetch` writes `validation/` (settings are chosen on it) and `test.zip`. `open` unpacks the test set, but only once: it
writes down the weights' hashes and the commit first, and refuses a second time. Train on those of scikit-image and
scikit-learn (`layout = "shipped"`), or add `train/` (--train N).

38 photographs in Debian 12 were told from drawings, renderings and patterns by eye; their licences are in the packages.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path

from PIL import Image

PACKAGES = {
    "lomiri-wallpapers-16.04": (
        "usr/share/backgrounds",
        "Bridge_by_Sander_Klootwijk Dragonfly_by_Bolly Picture_0B_by_freespace Picture_1A_by_freespace "
        "Wine_by_Jakkub_Mede aitzgorri_by_Aitzol_Berasategi free_by_Peter_Nerlich friends_by_Aitzol_Berasategi "
        "greentock_by_Peter_Nerlich life_by_Aitzol_Berasategi picosdeeuropa_by_Aitzol_Berasategi "
        "seeding_by_Clements_Engelhardt sunset_by_Aitzol_Berasategi",
    ),
    "lomiri-wallpapers-20.04": ("usr/share/backgrounds", "Kleiber_by_Lukas_Baubkus"),
    "mate-backgrounds": (
        "usr/share/backgrounds/mate/nature",
        "Aqua Blinds Dune FreshFlower Garden GreenMeadow LadyBird RainDrops Storm TwoWings Wood YellowFlower",
    ),
    "plasma-workspace-wallpapers": (
        "usr/share/wallpapers",
        "Autumn BytheWater ColdRipple ColorfulCups DarkestHour EveningGlow FallenLeaf Grey Kite OneStandsOut Path "
        "summer_1am",
    ),
}
VALIDATION = 12
LONGEST, CROP, CROPS = 960, 256, 4
"""Photographs are reduced to this longer side (which averages their own JPEG away), and cut at so many places."""


def download(folder: Path) -> None:
    """The packages, unpacked below `folder`, by apt and dpkg."""
    for package in PACKAGES:
        subprocess.run(["apt-get", "download", package], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (file,) = folder.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", str(file), str(folder / package)], check=True)
        file.unlink()


def photographs(folder: Path) -> dict[str, Path]:
    """Scene -> its largest file, of the unpacked packages; a photograph that a release lacks is left out."""
    found: dict[str, Path] = {}
    for package, (place, names) in PACKAGES.items():
        for name in names.split():
            root = folder / package / place
            files = [*root.glob(f"{name}.*"), *root.glob(f"{name}/contents/images/*")]
            files = [f for f in files if f.suffix.lower() in (".jpg", ".jpeg", ".png")]
            if files:
                found[name.split("_by_")[0]] = max(files, key=lambda f: f.stat().st_size)
    return found


def cut(file: Path) -> list[Image.Image]:
    """Crops of a photograph, at the corners of its middle."""
    with Image.open(file) as image:
        image = image.convert("RGB")
        factor = min(1.0, max(LONGEST / max(image.size), CROP / min(image.size)))
        image = image.resize([round(side * factor) for side in image.size], Image.Resampling.BICUBIC)
    width, height = image.size
    spots = [(x, y) for y in (0.25, 0.75) for x in (0.25, 0.75)][:CROPS]
    corners = [(round(x * (width - CROP)), round(y * (height - CROP))) for x, y in spots]
    return [image.crop((x, y, x + CROP, y + CROP)) for x, y in corners]


def split(scenes: list[str], train: int = 0) -> dict[str, list[str]]:
    """By a hash of the photograph's name: the same wherever it is made, whatever else is there."""
    order = sorted(scenes, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    return {
        "validation": order[:VALIDATION],
        "train": order[VALIDATION : VALIDATION + train],
        "test": order[VALIDATION + train :],
    }


def write(found: dict[str, Path], to: Path, train: int = 0) -> dict[str, list[str]]:
    """validation/ and train/ as folders, test.zip; scenes.json says which scene is where.

    Raises:
        SystemExit: something was written there before.
    """
    if (to / "scenes.json").exists():
        raise SystemExit(f"{to} is there already; another split of the same photographs would mix what was seen")
    sides = split(list(found), train)
    to.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(to / "test.zip", "w", zipfile.ZIP_STORED) as sealed:
        for side, scenes in sides.items():
            for scene in scenes:
                for i, crop in enumerate(cut(found[scene])):
                    name = f"{scene}-{i}.png"
                    if side == "test":
                        with sealed.open(name, "w") as file:
                            crop.save(file, "PNG")
                    else:
                        (to / side).mkdir(exist_ok=True)
                        crop.save(to / side / name)
    (to / "scenes.json").write_text(json.dumps(sides, indent=1))
    return sides


def open_once(to: Path, weights: list[Path], commit: str) -> Path:
    """Unpack the test set into test/, after writing down what will be tested on it.

    Raises:
        SystemExit: it was opened before, or there is nothing to test.
    """
    record = to / "opened.json"
    if record.exists():
        raise SystemExit(f"the test set was opened before: {record.read_text().strip()}")
    if not weights:
        raise SystemExit("name the weights that will be tested: after this, none may be chosen by their result")
    hashes = {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in weights}
    told = {"opened": datetime.now(UTC).isoformat(timespec="seconds"), "commit": commit, "weights": hashes}
    record.write_text(json.dumps(told, indent=1))
    with zipfile.ZipFile(to / "test.zip") as sealed:
        sealed.extractall(to / "test")
    return to / "test"


def commit_here() -> str:
    """HEAD, and whether files differ from it."""
    git = lambda *words: subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout  # noqa: E731
    return git("rev-parse", "HEAD").strip() + (" with changes" if git("status", "--porcelain").strip() else "")


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=["fetch", "open"])
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--train", type=int, default=0, help="photographs of the packages that may be trained on")
    parser.add_argument("--weights", type=Path, nargs="*", default=[])
    given = parser.parse_args(words)
    if given.what == "open":
        print(open_once(given.to, given.weights, commit_here()))
        return
    with tempfile.TemporaryDirectory() as folder:
        download(Path(folder))
        sides = write(photographs(Path(folder)), given.to, given.train)
    for side, scenes in sides.items():
        print(f"{side}: {len(scenes)} photographs, {CROPS * len(scenes)} crops")


if __name__ == "__main__":
    main(sys.argv[1:])
