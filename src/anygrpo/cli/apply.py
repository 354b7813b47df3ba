"""`anygrpo apply RUN INPUT --out OUT`: use a trained policy."""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from anygrpo.cli.opening import add_checkpoint, add_trust
from anygrpo.errors import plain
from anygrpo.spoken import say

WIDTH = 30
"""Characters of the bar."""


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "apply",
        help="use a trained policy: answers, picks, images, motions, restored pictures",
        description=say(
            "RUN is a run folder, a checkpoint, an export or a base model. What is there already is kept.",
            "RUN 是运行文件夹、检查点、导出或基座模型。已有的结果会保留。",
        ),
    )
    parser.add_argument(
        "run", help=say("a run folder, a checkpoint, an export, or a base model", "运行文件夹、检查点、导出或基座模型")
    )
    parser.add_argument("input", nargs="+", help=say("files or folders, or a text itself", "文件或文件夹，或一段文字"))
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help=say("a file (.jsonl) or a folder, as the family writes", "文件（.jsonl）或文件夹，视策略所属的族而定"),
    )
    add_checkpoint(parser)
    parser.add_argument(
        "--seed",
        type=int,
        help=say(
            "draw from this seed; without it the policy's likeliest output", "用这个种子抽样；不给则取策略最可能的输出"
        ),
    )
    parser.add_argument(
        "--samples",
        type=int,
        help=say("answers a prompt, where they are drawn (language)", "抽样时每个提示的回答数（语言）"),
    )
    parser.add_argument(
        "--draws",
        type=int,
        help=say("results a picture with drawn gates (restoration)", "抽取门时每张图片的结果数（复原）"),
    )
    parser.add_argument(
        "--candidates",
        metavar="FILE",
        help=say("what a selector picks from, as the queries in INPUT", "选择器挑选的候选，与 INPUT 中的查询同类"),
    )
    parser.add_argument(
        "--pictures",
        metavar="COLUMN",
        help=say("the column of pictures in INPUT (models that see)", "INPUT 中图片所在的列（能看图的模型）"),
    )
    parser.add_argument(
        "--pool",
        type=int,
        help=say(
            "a query's nearest so many candidates (selection; 0: all); as in training where left out",
            "每个查询最近的这么多候选（选择；0：全部）；不给则与训练时相同",
        ),
    )
    parser.add_argument(
        "--ids",
        choices=("one", "two"),
        help=say(
            "one: a query is not its own candidate (selection); as in training where left out",
            "one：查询不能是自己的候选（选择）；不给则与训练时相同",
        ),
    )
    parser.add_argument(
        "--embedding",
        help=say("of a selector's texts: minilm, or as in training", "选择器的文本：minilm，或与训练时相同"),
    )
    add_trust(parser)
    parser.add_argument(
        "--like",
        metavar="RECIPE",
        help=say("use an export or a base model as this recipe says", "按此配方使用导出或基座模型"),
    )
    parser.add_argument("--quiet", action="store_true", help=say("no progress", "不显示进度"))
    parser.add_argument("--json", action="store_true", help=say("print the rows", "打印各行"))


def run(args: argparse.Namespace) -> int:
    """Exit code 0, or an error's."""
    from anygrpo.export.opened import load
    from anygrpo.recipe.load import load_recipe

    settings: dict[str, Any] = {"device": args.device} if args.device else {}
    like = load_recipe(args.like).policy if args.like else None
    opened = load(args.run, args.checkpoint, like=like, trust=args.trust, **settings)
    progress = None if args.quiet or args.json else _Bar()
    names = ("seed", "samples", "pictures", "draws", "candidates", "pool", "ids", "embedding")
    asked = {name: getattr(args, name) for name in names} | {"progress": progress}
    rows = opened.apply(_inputs(args.input), args.out, **asked)
    if args.json:
        print(json.dumps(rows, ensure_ascii=False, indent=2, default=str))
    elif progress is not None:
        print(say(f"\n{len(rows)} rows -> {args.out}", f"\n{len(rows)} 行 -> {args.out}"), file=sys.stderr)
    failed = [row for row in rows if row.get("status") == "failed"]
    for row in failed:
        print(plain(f"{row.get('input')}: {row.get('reason')}"), file=sys.stderr)
    return 3 if failed else 0


def _inputs(given: list[str]) -> Any:
    """Paths where they are there, else texts."""
    paths = [Path(text) if len(text) < 4096 and Path(text).exists() else text for text in given]
    return paths[0] if len(paths) == 1 else paths


class _Bar:
    """A line on stderr that is written over: a bar, how many, and after two calls the time left by the pace between."""

    def __init__(self) -> None:
        self.first: tuple[float, int] | None = None

    def __call__(self, done: int, total: int, *_: Any) -> None:
        now, left = time.monotonic(), ""
        if self.first is None:  # rows that were there, and the first ones, whose time is another's
            self.first = now, done
        elif done > self.first[1]:
            seconds = (now - self.first[0]) / (done - self.first[1]) * (total - done)
            left = f"{timedelta(seconds=round(seconds))}"
        full = round(WIDTH * done / max(total, 1))
        ending = say(f"  {left} left", f"  剩余 {left}") if left and done < total else ""
        print(f"\r[{'#' * full}{'-' * (WIDTH - full)}] {done}/{total}{ending:<16}", end="", file=sys.stderr, flush=True)
