"""A grid under docs/data as a picture: a row a line, a column a panel, intervals as bars.

    python scripts/plot_table.py docs/data/restoration/width16_none.csv width16.png --columns 2 4

    python scripts/plot_table.py docs/data/selection/composition_calls.csv calls.png --columns 2 3 4 --against 1

With --against the first column names lines, and that column (numbers, log scale) is what they run along; a row without
a number there is a line across. A cell reads `.854`, `.854 (.002)`, `.605 +- .035` or `+0.34 [+0.19, +0.52]`; anything
else is left out. The line at 0 is drawn where a panel holds changes.
"""

from __future__ import annotations

import argparse
import csv
import re
from pathlib import Path
from typing import NamedTuple

NUMBER = r"[+-]?\d*\.?\d+(?:e[+-]?\d+)?"
CELL = re.compile(rf"({NUMBER})(?: \[({NUMBER}), ({NUMBER})\]| \+- ({NUMBER})| \(({NUMBER})\))?")


class Value(NamedTuple):
    """A number and how far below and above it the bar goes."""

    middle: float
    below: float
    above: float


def value(cell: str) -> Value | None:
    """The number of a cell with its bar; None for words and empty cells."""
    found = CELL.fullmatch(cell.strip())
    if found is None:
        return None
    middle = float(found[1])
    if found[2]:
        return Value(middle, middle - float(found[2]), float(found[3]) - middle)
    error = float(found[4] or found[5] or 0)
    return Value(middle, error, error)


def draw(table: Path, out: Path, columns: list[int]) -> None:
    """Write the picture.

    Args:
        table: CSV with names in its first column.
        out: a .png file.
        columns: places of the columns to show, the first is 0.

    Raises:
        SystemExit: a column holds no number.
    """
    from matplotlib.figure import Figure

    with table.open(encoding="utf-8", newline="") as file:
        head, *rows = list(csv.reader(file))
    figure = Figure(figsize=(1.6 + 2.6 * len(columns), 0.6 + 0.27 * len(rows)), dpi=130, layout="constrained")
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for axes, column in zip(panels, columns, strict=True):
        cells = [(i, value(row[column])) for i, row in enumerate(rows)]
        shown = [(i, v) for i, v in cells if v is not None]
        if not shown:
            raise SystemExit(f"{table}: no numbers in column {column} ({head[column]})")
        bars = [[v.below for _, v in shown], [v.above for _, v in shown]]
        axes.errorbar([v.middle for _, v in shown], [i for i, _ in shown], xerr=bars, fmt="o", ms=4, capsize=2)
        if any(row[column].startswith("+") for row in rows):
            axes.axvline(0, color="0.6", lw=0.8)
        axes.set_title(head[column], fontsize=9)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(rows)), [row[0] for row in rows])
    panels[0].invert_yaxis()
    figure.savefig(out)


def lines(table: Path, out: Path, columns: list[int], against: int) -> None:
    """Write the picture of lines, one for each name in the first column, along the numbers of column `against`.

    Raises:
        SystemExit: a column holds no number.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    with table.open(encoding="utf-8", newline="") as file:
        head, *rows = list(csv.reader(file))
    names = list(dict.fromkeys(row[0] for row in rows))
    colours = colormaps["tab20"].colors  # type: ignore[attr-defined]
    figure = Figure(figsize=(1.2 + 2.9 * len(columns), 3.6), dpi=130, layout="constrained")
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for axes, column in zip(panels, columns, strict=True):
        if not any(value(row[column]) for row in rows):
            raise SystemExit(f"{table}: no numbers in column {column} ({head[column]})")
        for number, name in enumerate(names):
            cells = [(value(row[against]), value(row[column])) for row in rows if row[0] == name]
            points = [(at.middle, v) for at, v in cells if at and v]
            look = {"color": colours[number % 20], "label": name}
            for _, v in [cell for cell in cells if cell[0] is None and cell[1]]:
                axes.axhline(v.middle, ls="--" if number % 2 else ":", lw=1, **look)  # type: ignore[union-attr]
            if points:
                bars = [[v.below for _, v in points], [v.above for _, v in points]]
                along = [at for at, _ in points]
                axes.errorbar(along, [v.middle for _, v in points], yerr=bars, marker="o", ms=4, capsize=2, **look)
        axes.set_xscale("log")
        places = sorted({at.middle for row in rows if (at := value(row[against]))})
        axes.set_xticks(places, [f"{x:,g}" for x in places])
        axes.minorticks_off()
        axes.set_xlabel(head[against], fontsize=8)
        axes.set_title(head[column], fontsize=9)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=7)
    figure.savefig(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--columns", type=int, nargs="+", default=[1])
    parser.add_argument("--against", type=int, help="column of numbers that lines run along")
    args = parser.parse_args()
    if args.against is None:
        draw(args.table, args.out, args.columns)
    else:
        lines(args.table, args.out, args.columns, args.against)


if __name__ == "__main__":
    main()
