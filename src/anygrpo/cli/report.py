"""`anygrpo report RUN`: a run folder as one HTML file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from anygrpo.spoken import LANGUAGES, current, say


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("report", help="a run folder as one HTML file")
    parser.add_argument("run", help=say("run folder", "运行文件夹"))
    parser.add_argument(
        "--output",
        help=say(
            "where to write; default: report.html in the run folder", "写到哪里；默认：运行文件夹中的 report.html"
        ),
    )
    parser.add_argument("--lang", choices=LANGUAGES, default=current())


def run(args: argparse.Namespace) -> int:
    """Write the page and say where it lies."""
    from anygrpo.report import write_report

    folder = Path(args.run)
    target = Path(args.output) if args.output else folder / "report.html"
    write_report(folder, target, args.lang)
    print(target)
    return 0
