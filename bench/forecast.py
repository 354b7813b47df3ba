"""The forecast of `anygrpo train --dry-run --trial 3` beside the real run, for whole recipes.

    python bench/forecast.py recipes/selection/digits_vqa.toml [--table.key value ...]

Prints a line a recipe: what was forecast, what the run took, and the ratio, for seconds, peak memory and disk.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from anygrpo.recipe.load import load_recipe
from anygrpo.train.folder import read_rows
from anygrpo.watch.forecast import forecast
from anygrpo.watch.trial import measured


def compared(recipe: str, flags: list[str], steps: int = 3) -> dict[str, tuple[float, float]]:
    """Of seconds, memory in GB and disk in MB: (forecast, real)."""
    loaded = load_recipe(recipe, flags)
    said = forecast(measured(loaded, steps), loaded)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        began = time.monotonic()
        words = [sys.executable, "-m", "anygrpo", "train", recipe, "--folder", str(folder), "--quiet", *flags]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        took = time.monotonic() - began
        disk = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and not f.is_symlink())
        memory = max(row.get("memory/peak_gb", 0.0) for row in read_rows(folder / "metrics.jsonl")[0])
    return {
        "seconds": (said.seconds, took),
        "memory_gb": (said.memory_gb, memory),
        "disk_mb": (said.disk_bytes / 2**20, disk / 2**20),
    }


def main(words: list[str]) -> int:
    made = compared(words[0], words[1:])
    row = {k: [round(f, 3), round(r, 3), round(f / r, 3)] for k, (f, r) in made.items()}
    print(json.dumps({"recipe": " ".join(words), **row}))
    return 0 if all(abs(f / r - 1) <= 0.25 for f, r in made.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
