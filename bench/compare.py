"""A selection or diffusion step of ours beside a peer's: PYTHONPATH=src python bench/compare.py selector.

selector     beside RL4CO's REINFORCE
diffusion    beside DDPO's or Flow-GRPO's plain loop, TRL's old trainer; --vs bare: the denoiser's own passes
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

from anygrpo.cli.bench import add_comparison, peer_of, show

PEERS = {"selector": ("rl4co",), "diffusion": ("ddpo", "flow_grpo", "bare", "trl")}
CASES = {
    "selector": "recipe, large, recipe-am, large-am, tiny, tiny-am",
    "diffusion": "unet, motion, full-motion, flow, tiny-unet, tiny-motion, tiny-flow",
}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    whats = made.add_subparsers(dest="what", required=True)
    for what, peers in PEERS.items():
        one = whats.add_parser(what)
        one.add_argument("--case", action="append", help=f"{CASES[what]}; may be repeated")
        one.add_argument("--json", action="store_true")
        one.add_argument("--peer-python", default=sys.executable, help="interpreter of the peer's environment")
        add_comparison(one, peers)
        if what == "diffusion":
            one.add_argument("--denoising-steps", type=int, help="T, in place of the case's")
            one.add_argument("--here", action="store_true", help="both sides in one process (not trl)")
    return made


def measured(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """The record of one case."""
    room = importlib.import_module(f"peers.{args.what}")
    case_named = importlib.import_module(f"peers.{args.what}.cases").case_named
    case = case_named(name, steps=args.denoising_steps) if args.what == "diffusion" else case_named(name)
    where = {"here": args.here} if args.what == "diffusion" else {}
    return room.compare(
        case, peer_of(args), args.rounds, args.steps, args.threads, not args.no_gradient, args.peer_python, **where
    )


def main(arguments: list[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    first = CASES[given.what].partition(",")[0]
    show([measured(name, given) for name in given.case or [first]], given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
