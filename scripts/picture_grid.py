"""Held-out pictures of a run before and after it, side by side: a row a prompt.

    python scripts/picture_grid.py RUN grid.png --rows 10 --columns 8 --side 24

Read from the run's evaluations/ (its first and last file), which hold each held-out picture; prompts and seeds are the
same in both.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
from collections import defaultdict
from pathlib import Path

from PIL import Image

GAP = 12


def pictures(file: Path) -> dict[str, list[Image.Image]]:
    """Prompt -> its pictures in order."""
    found: dict[str, list[Image.Image]] = defaultdict(list)
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        data = str(row.get("output", "")).partition("base64,")[2]
        if data:
            found[str(row.get("text", row["prompt"]))].append(
                Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
            )
    return found


def grid(run: Path, rows: int, columns: int, side: int) -> Image.Image:
    """[rows x 2 columns]: before on the left, after on the right.

    Raises:
        SystemExit: the run has not two evaluations with pictures.
    """
    files = sorted((run / "evaluations").glob("*.jsonl"))
    if len(files) < 2:
        raise SystemExit(f"{run} has {len(files)} evaluations: a grid needs the first and the last")
    before, after = pictures(files[0]), pictures(files[-1])
    names = list(before)[:rows]
    if not names:
        raise SystemExit(f"{files[0]} holds no pictures")
    sheet = Image.new("RGB", (2 * columns * side + GAP, len(names) * side), "white")
    for y, name in enumerate(names):
        for left, made in ((0, before[name]), (columns * side + GAP, after.get(name, []))):
            for x, picture in enumerate(made[:columns]):
                small = picture.resize((side - 1, side - 1), Image.Resampling.NEAREST)
                sheet.paste(small, (left + x * side, y * side))
    return sheet


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("to", type=Path)
    for name, value in (("rows", 10), ("columns", 8), ("side", 24)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    grid(given.run, given.rows, given.columns, given.side).save(given.to, optimize=True)


if __name__ == "__main__":
    main()
