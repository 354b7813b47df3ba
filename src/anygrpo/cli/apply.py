"""`anygrpo apply RUN INPUT --out OUT`: use a trained policy."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from anygrpo.errors import plain


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "apply",
        help="use a trained policy: answers, picks, images, motions, restored pictures",
        description="RUN is a run folder, a checkpoint, an export or a base model. What is there already is kept.",
    )
    parser.add_argument("run", help="a run folder, a checkpoint, an export, or a base model")
    parser.add_argument("input", nargs="+", help="files or folders, or a text itself")
    parser.add_argument("--out", type=Path, required=True, help="a file (.jsonl) or a folder, as the family writes")
    parser.add_argument("--checkpoint", default="best", help="of a run: best, last, or a step")
    parser.add_argument("--seed", type=int, help="draw from this seed; without it the policy's likeliest output")
    parser.add_argument("--samples", type=int, help="answers a prompt, where they are drawn (language)")
    parser.add_argument("--draws", type=int, help="results a picture with drawn gates (restoration)")
    parser.add_argument("--candidates", metavar="FILE", help="what a selector picks from, as the queries in INPUT")
    parser.add_argument("--pool", type=int, help="a query's nearest so many candidates (selection; 0: all)")
    parser.add_argument("--embedding", help="of a selector's texts: minilm, or as in training")
    parser.add_argument("--trust", action="store_true", help="run Python code that lies in an export's folder")
    parser.add_argument("--like", metavar="RECIPE", help="use an export or a base model as this recipe says")
    parser.add_argument("--device", help="default as in the recipe")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print the rows")


def run(args: argparse.Namespace) -> int:
    """Exit code 0, or an error's."""
    from anygrpo.export.opened import load
    from anygrpo.recipe.load import load_recipe

    settings: dict[str, Any] = {"device": args.device} if args.device else {}
    like = load_recipe(args.like).policy if args.like else None
    opened = load(args.run, args.checkpoint, like=like, trust=args.trust, **settings)
    progress = None if args.quiet or args.json else _progress
    names = ("seed", "samples", "draws", "candidates", "pool", "embedding")
    asked = {name: getattr(args, name) for name in names} | {"progress": progress}
    rows = opened.apply(_inputs(args.input), args.out, **asked)
    if args.json:
        print(json.dumps(rows, ensure_ascii=False, indent=2, default=str))
    elif progress is not None:
        print(f"\n{len(rows)} rows -> {args.out}", file=sys.stderr)
    failed = [row for row in rows if row.get("status") == "failed"]
    for row in failed:
        print(plain(f"{row.get('input')}: {row.get('reason')}"), file=sys.stderr)
    return 3 if failed else 0


def _inputs(given: list[str]) -> Any:
    """Paths where they are there, else texts."""
    paths = [Path(text) if len(text) < 4096 and Path(text).exists() else text for text in given]
    return paths[0] if len(paths) == 1 else paths


def _progress(done: int, total: int, *_: Any) -> None:
    print(f"\r{done}/{total}", end="", file=sys.stderr, flush=True)
