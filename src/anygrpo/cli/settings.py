"""`anygrpo settings [TABLE]`: every key of a recipe, with type, default and meaning."""

from __future__ import annotations

import argparse
import json
import textwrap
from itertools import groupby
from typing import Any

from anygrpo.recipe.editors import recipe_schema
from anygrpo.recipe.heads import written
from anygrpo.recipe.reference import Setting, meaning, named, settings, tables
from anygrpo.spoken import say


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "settings",
        help="every key of a recipe: type, default, meaning",
        description="anygrpo settings | settings algorithm | settings causal_lm | settings rewards.judge | "
        "settings learning_rate",
    )
    parser.add_argument(
        "table",
        nargs="?",
        help=say(
            "a table (its name, or the end of it), or a key; none: all tables",
            "表（其名称，或名称的末段）或键；不给：所有表",
        ),
    )
    parser.add_argument("--json", action="store_true", help=say("as JSON", "输出 JSON"))
    parser.add_argument(
        "--json-schema",
        action="store_true",
        help=say("a JSON schema of recipes, for editors", "配方的 JSON schema，供编辑器使用"),
    )


def run(args: argparse.Namespace) -> int:
    """Print them; exit code 0, or 2 for an unknown word."""
    if args.json_schema:
        print(json.dumps(recipe_schema(), ensure_ascii=False, indent=1))
        return 0
    if args.table is None:
        listed = {name or say("(the recipe's own keys)", "（配方自身的键）"): len(settings(name)) for name in tables()}
        width = max(map(len, listed))
        text = "\n".join(f"{name:<{width}}  {count} {say('keys', '个键')}" for name, count in listed.items())
        last = say("anygrpo settings TABLE shows them", "anygrpo settings 表名：列出其中的键")
        print(json.dumps(listed, ensure_ascii=False, indent=1) if args.json else f"{text}\n\n{last}")
        return 0
    found = named(args.table)
    print(json.dumps([vars(one) for one in found], ensure_ascii=False, indent=1) if args.json else text_of(found))
    return 0


def text_of(found: list[Setting]) -> str:
    """Tables of keys, a sentence below each."""
    parts = []
    for table, keys in groupby(found, key=lambda one: one.table):
        head = written(table).said().replace("`", "")
        lines = [f"{table}: {head}" if table else head]
        for one in keys:
            default = f" = {one.default}" if one.default else say(" (must be given)", "（必须给出）")
            lines.append(f"  {one.name}{default}    {one.type}")
            said = meaning(one).said()
            wide = 110 if said == one.sentence else 52  # a Chinese character takes two places
            lines += textwrap.wrap(said, wide, initial_indent="      ", subsequent_indent="      ")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
