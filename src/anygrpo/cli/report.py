"""`anygrpo report RUN`: a run folder as one HTML file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from anygrpo.spoken import LANGUAGES, current


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("report", help="a run folder as one HTML file")
    parser.add_argument("run", help="run folder")
    parser.add_argument("--output", help="where to write; default: report.html in the run folder")
    parser.add_argument("--lang", choices=LANGUAGES, default=current())


def run(args: argparse.Namespace) -> int:
    """Write the page and say where it lies."""
    from anygrpo.report import write_report

    folder = Path(args.run)
    target = Path(args.output) if args.output else folder / "report.html"
    write_report(folder, target, args.lang)
    print(target)
    return 0
