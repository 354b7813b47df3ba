"""`anygrpo sweep recipe.toml --space space.toml`: search settings, with intervals."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anygrpo.files import read_toml
from anygrpo.recipe.load import load_recipe
from anygrpo.spoken import say


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "sweep",
        help="search settings, with intervals",
        description=say(
            "Continues where it stopped. The same command started twice works on one study together.",
            "从停下的地方继续。同一命令启动两次，会共同完成同一项搜索。",
        ),
    )
    parser.add_argument(
        "recipe",
        help=say("a .toml file; its settings can be given as flags too", ".toml 文件；其中的设置也可作为参数给出"),
    )
    parser.add_argument("--space", required=True, help=say("a .toml file: what to vary", ".toml 文件：要变动什么"))
    parser.add_argument("--folder", type=Path, help=say("default: sweeps/<recipe's name>", "默认：sweeps/<配方名>"))
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(takes_flags=True)


def run(args: argparse.Namespace) -> int:
    """Run what is left of the sweep and print its table; exit code 0, or an error's."""
    from anygrpo.sweep.results import table, verdict, winner, worth
    from anygrpo.sweep.search import open_study, read_space, sweep

    recipe = load_recipe(args.recipe, args.flags)
    settings = read_toml(Path(args.recipe))
    folder = args.folder or Path("sweeps") / recipe.name
    space = read_space(args.space)
    rows = sweep(settings, space, folder, args.flags)
    found = winner(open_study(folder, space), folder, rows)
    if args.json:
        honest = None if found is None else asdict(found)
        print(json.dumps({"trials": [asdict(r) for r in rows], "verdict": verdict(rows), "winner": honest}, indent=2))
        return 0
    print(f"{table(rows)}\n\n{verdict(rows)}\n{worth(found)}")
    return 0
