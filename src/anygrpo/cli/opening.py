"""Arguments of the commands that open a policy."""

from __future__ import annotations

import argparse

from anygrpo.spoken import say


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """--checkpoint, --device: which weights of a run, and where the policy computes."""
    parser.add_argument(
        "--checkpoint",
        default="best",
        help=say("of a run: best, last, or a step; default best", "对运行文件夹：best、last 或某一步；默认 best"),
    )
    parser.add_argument("--device", help=say("default as in the recipe", "默认与配方相同"))


def add_trust(parser: argparse.ArgumentParser) -> None:
    """--trust: strangers' exports may hold code."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help=say("run Python code that lies in an export's folder", "运行导出文件夹中的 Python 代码"),
    )
