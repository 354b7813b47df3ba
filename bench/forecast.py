"""The forecast of `anygrpo train --dry-run --trial 3` beside the real run, for whole recipes.

    python bench/forecast.py recipes/selection/digits_vqa.toml [--table.key value ...]

Prints a line a recipe: what was forecast, what the run took, and the ratio. `seconds` are by the clock less those in
which other work had the processor, so that a busy machine can be measured on too; `clock` is as it passed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from anygrpo.recipe.load import load_recipe
from anygrpo.train.folder import read_rows
from anygrpo.watch.cost import Cost, waited
from anygrpo.watch.forecast import forecast
from anygrpo.watch.trial import measured


def compared(recipe: str, flags: list[str], steps: int = 3) -> dict[str, tuple[float, float]]:
    """Of seconds (alone, of the processor, by the clock), memory in GB and disk in MB: (forecast, real)."""
    loaded = load_recipe(recipe, flags)
    said = forecast(measured(loaded, steps), loaded)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        words = [sys.executable, "-m", "anygrpo", "train", recipe, "--folder", str(folder), "--quiet", *flags]
        took = _cost(words)
        disk = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and not f.is_symlink())
        memory = max(row.get("memory/peak_gb", 0.0) for row in read_rows(folder / "metrics.jsonl")[0])
    return {
        "seconds": (said.cost.alone, took.alone),
        "processor": (said.cost.processor, took.processor),
        "clock": (said.cost.clock, took.clock),
        "memory_gb": (said.memory_gb, memory),
        "disk_mb": (said.disk_bytes / 2**20, disk / 2**20),
    }


def _cost(words: list[str]) -> Cost:
    """Of a command: looked at five times a second, since what it waited for is gone when it ends."""
    began = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    late = 0.0
    while True:
        late = max(late, waited(str(process.pid)))
        found, status, used = os.wait4(process.pid, os.WNOHANG)
        if found:
            break
        time.sleep(0.2)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}")
    return Cost(time.monotonic() - began, used.ru_utime + used.ru_stime, late)


def main(words: list[str]) -> int:
    made = compared(words[0], words[1:])
    row = {k: [round(f, 3), round(r, 3), round(f / r, 3)] for k, (f, r) in made.items()}
    print(json.dumps({"recipe": " ".join(words), **row}), flush=True)
    return 0 if all(abs(f / r - 1) <= 0.25 for what, (f, r) in made.items() if what != "clock") else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
