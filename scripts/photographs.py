"""Photographs that nobody tuned on: fetched from Debian's packages, cut, split by photograph, opened once.

    python scripts/photographs.py fetch --to data/photographs
    python scripts/photographs.py open --to data/photographs --weights runs/a/checkpoints/best/policy.safetensors ...

`fetch` writes `train/`, `validation/` (settings are chosen on it) and `test.zip`. `open` unpacks the test set, but only
once: it writes down the weights' hashes and the commit first, and refuses a second time. Train on `train/` and those of
scikit-image and scikit-learn (`layout = "shipped"`).

The photographs in Debian 12's packages were told from drawings, renderings and patterns by eye, one was taken of each
place; their licences are in the packages. A photograph of the test set is one scene and one crop.
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
    "palapeli-data": (
        "usr/share/palapeli/collection",
        "castle-maintenon cincinnati-bridge citrus-fruits european-honey-bee panther-chameleon-female",
    ),
    "opencv-doc": (
        "usr/share/doc/opencv-doc/examples",
        "data/aero1 data/aloeL data/apple data/baboon data/board data/building data/butterfly data/chicky_512 "
        "data/fruits data/graf1 data/leuvenA data/messi5 data/rubberwhale1 data/squirrel_cls "
        "alphamat/input_images/plant "
        "text/scenetext01 text/scenetext03 text/scenetext04 text/scenetext05 text/scenetext06 "
        "text/scenetext_segmented_word01 text/scenetext_segmented_word02",
    ),
    "scratch": (
        "usr/share/scratch/Media/Backgrounds",
        "Nature/beach-malibu Nature/canyon Nature/flower-bed Nature/garden-rock Nature/grand-canyon "
        "Nature/gravel-desert Nature/hill Nature/lake Nature/pathway Nature/tree Nature/water-and-rocks Nature/wave "
        "Sports/baseball-field "
        "Sports/basketball-court1-a Sports/football-field Sports/playing-field Sports/tennis-backboard "
        "Outdoors/all-sports-mural Outdoors/atom-playground Outdoors/bench-with-view Outdoors/berkeley-mural "
        "Outdoors/boardwalk Outdoors/brick-wall-and-stairs Outdoors/building-at-mit Outdoors/building-fireproof "
        "Outdoors/castle Outdoors/city-with-water Outdoors/driveway Outdoors/hallway_outdoors Outdoors/hay_field "
        "Outdoors/houses Outdoors/mansion Outdoors/mural-faro Outdoors/parking-ramp Outdoors/pool Outdoors/route66 "
        "Outdoors/silos Outdoors/the-movies Outdoors/train-tracks1 Outdoors/train-tracks2 Outdoors/village "
        "Outdoors/wooden-house Indoors/clothing-store Indoors/hall Indoors/kitchen Indoors/the-movies-inside",
    ),
}
WALLPAPERS = ("lomiri-wallpapers-16.04", "lomiri-wallpapers-20.04", "mate-backgrounds", "plasma-workspace-wallpapers")
"""Of these the validation set is taken."""
VALIDATION, TEST = 12, 48
LONGEST, SHARE, CROP = 960, 0.75, 256
"""A photograph is reduced to this longer side, and to this share of its own size at least (which averages its own JPEG
away), as long as a crop fits."""
CROPS = {"train": 3, "validation": 1, "test": 1}


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
                found[scene(package, name)] = max(files, key=lambda f: f.stat().st_size)
    return found


def scene(package: str, name: str) -> str:
    """Of a wallpaper its title; of others the package's name too, since names as "castle" come twice."""
    title = name.split("_by_")[0].rsplit("/", 1)[-1]
    return title if package in WALLPAPERS else f"{package.split('-')[0]}_{title}"


def cut(file: Path, crops: int = 1) -> list[Image.Image]:
    """Crops of a photograph: its middle, or on its diagonal."""
    with Image.open(file) as image:
        image = image.convert("RGB")
        factor = min(SHARE, LONGEST / max(image.size))
        factor = min(1.0, max(factor, CROP / min(image.size)))
        image = image.resize([round(side * factor) for side in image.size], Image.Resampling.BICUBIC)
    width, height = image.size
    spots = [(i + 0.5) / crops for i in range(crops)]
    corners = [(round(s * (width - CROP)), round(s * (height - CROP))) for s in spots]
    return [image.crop((x, y, x + CROP, y + CROP)) for x, y in corners]


def split(scenes: list[str], wallpapers: list[str] | None = None) -> dict[str, list[str]]:
    """By a hash of the photograph's name: the same wherever it is made. Validation: of `wallpapers` (all scenes where
    not given)."""
    order = sorted(scenes, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    validation = [s for s in order if wallpapers is None or s in wallpapers][:VALIDATION]
    rest = [s for s in order if s not in validation]
    return {"validation": validation, "test": rest[:TEST], "train": rest[TEST:]}


def write(found: dict[str, Path], to: Path) -> dict[str, list[str]]:
    """validation/ and train/ as folders, test.zip; scenes.json says which scene is where.

    Raises:
        SystemExit: something was written there before.
    """
    if (to / "scenes.json").exists():
        raise SystemExit(f"{to} is there already; another split of the same photographs would mix what was seen")
    wallpapers = [scene(p, n) for p in WALLPAPERS for n in PACKAGES[p][1].split()]
    sides = split(list(found), wallpapers)
    to.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(to / "test.zip", "w", zipfile.ZIP_STORED) as sealed:
        for side, scenes in sides.items():
            for one in scenes:
                for i, crop in enumerate(cut(found[one], CROPS[side])):
                    name = f"{one}-{i}.png"
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
    parser.add_argument("--weights", type=Path, nargs="*", default=[])
    parser.add_argument("--commit", help="of the code, where there is no git to ask")
    given = parser.parse_args(words)
    if given.what == "open":
        print(open_once(given.to, given.weights, given.commit or commit_here()))
        return
    with tempfile.TemporaryDirectory() as folder:
        download(Path(folder))
        sides = write(photographs(Path(folder)), given.to)
    for side, scenes in sides.items():
        print(f"{side}: {len(scenes)} photographs, {CROPS[side] * len(scenes)} crops")


if __name__ == "__main__":
    main(sys.argv[1:])
