"""`anygrpo autopsy`: what a few logged numbers prove about a run."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from anygrpo.cli.page_file import written
from anygrpo.errors import ConfigError, DataError
from anygrpo.spoken import LANGUAGES, Text, current, say

HELP = Text(
    "what a few logged numbers prove: group size, clamp, beta, live groups",
    "由几个记录的数值证明什么：组大小、钳制、beta、有信号的组",
)


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Register the command; one flag per number."""
    from anygrpo.doctor.printed import NORMALISERS, NUMBERS

    parser: argparse.ArgumentParser = subparsers.add_parser("autopsy", help=HELP.said(), description=HELP.said())
    parser.add_argument(
        "numbers",
        nargs="?",
        metavar="FILE",
        help=say(
            "a JSON object of numbers, or a note: prose, tables, bullets, shell exports; beside or instead of flags",
            "数值的 JSON 对象，或一段笔记：文字、表格、列表、shell 导出；可代替参数或与之同用",
        ),
    )
    for name in NUMBERS:
        parser.add_argument(f"--{name.replace('_', '-')}", dest=f"n_{name}", metavar="X", default=None)
    parser.add_argument(
        "--normaliser",
        dest="n_normaliser",
        metavar="NAME",
        help=say(f"stated normaliser: {', '.join(NORMALISERS)}", f"所声明的归一化：{'、'.join(NORMALISERS)}"),
    )
    parser.add_argument(
        "--json", action="store_true", help=say("machine form on standard output", "在标准输出上给出机器可读的形式")
    )
    parser.add_argument("--html", metavar="FILE", help=say("write the argument as a page", "把论证写成一页"))
    parser.add_argument("--lang", choices=LANGUAGES, default=current())
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Examine and show. Returns 0.

    Raises:
        ConfigError: an unknown name or something that is no number.
        DataError: the file is missing or no JSON object.
    """
    from anygrpo.doctor.autopsy import examine

    numbers, text = read_numbers(args.numbers) if args.numbers else ({}, "")
    numbers |= {key[2:]: value for key, value in vars(args).items() if key.startswith("n_") and value is not None}
    try:
        autopsy = examine(numbers, text)
    except ConfigError as error:
        raise (DataError(f"{args.numbers}: {error.what}", error.cure) if text and not numbers else error) from None
    source = args.numbers or "command line"
    if args.json:
        from anygrpo.doctor.render.autopsy_page import as_json

        print(json.dumps(as_json(autopsy, source, args.lang), ensure_ascii=False, indent=2))
    else:
        from rich.console import Console

        from anygrpo.doctor.render.autopsy_page import show

        show(autopsy, Console(file=sys.stdout), args.lang)
    if args.html:
        from anygrpo.doctor.render.autopsy_page import page

        written(args.html, page(autopsy, args.lang))
    return 0


def read_numbers(path: str) -> tuple[dict[str, Any], str]:
    """(numbers, the text around them): a flat JSON object, or a note in any form.

    Numbers are kept as they were written, since their printing is part of the evidence.
    """
    from anygrpo.doctor.notes import read_note

    try:
        text = Path(path).read_text("utf-8", "replace")
    except OSError as error:
        raise DataError(
            Text(
                f"{path}: cannot be read ({error.strerror})",
                f"{path}：无法读取（{'没有这个文件' if isinstance(error, FileNotFoundError) else error.strerror}）",
            ),
            Text("give a JSON object of numbers or a note", "请给出数字的 JSON 对象，或一份记录"),
        ) from None
    try:
        data: Any = json.loads(text, parse_float=str, parse_int=str)
    except (ValueError, RecursionError) as error:
        if text.lstrip()[:1] in "{[":
            raise DataError(
                Text(f"{path}: not valid JSON ({str(error)[:100]})", f"{path}：不是有效的 JSON（{str(error)[:100]}）"),
                Text("give a JSON object of numbers", "请给出由数组成的 JSON 对象"),
            ) from None
        note = read_note(text)
        return note.numbers | ({"normaliser": note.normaliser} if note.normaliser else {}), text
    if not isinstance(data, dict):
        raise DataError(
            Text(
                f"{path}: a JSON {type(data).__name__}, not an object",
                f"{path}：JSON 是 {type(data).__name__}，不是对象",
            ),
            Text('write {"mean_ratio": 485165216, ...}', '请写成 {"mean_ratio": 485165216, ...}'),
        )
    return data, ""
