"""`anygrpo mcp`: doctor, autopsy, compare and check for assistants, over standard input and output."""

from __future__ import annotations

import argparse
from typing import Any

from anygrpo.spoken import Text, say

HELP = Text(
    "an MCP server: doctor, autopsy, compare and check for assistants",
    "供助手使用的 MCP 服务器：doctor、autopsy、compare 和 check",
)


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Register the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser("mcp", help=HELP.said(), description=HELP.said())
    parser.add_argument("--list", action="store_true", help=say("name the tools and stop", "列出工具名称，然后停止"))
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Serve until standard input closes. Returns 0.

    Raises:
        ConfigError: the SDK is not installed.
    """
    from anygrpo.cli.assistants import TOOLS, server

    if args.list:
        print("\n".join(f"{tool.__name__}: {(tool.__doc__ or '').splitlines()[0]}" for tool in TOOLS))
        return 0
    server().run()
    return 0
