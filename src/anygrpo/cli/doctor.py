"""`anygrpo doctor PATH...`: what is wrong with a training run, from its log alone."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anygrpo.errors import ConfigError, DoctorObjection

if TYPE_CHECKING:
    from anygrpo.doctor import Diagnosis

HELP = "diagnose a training log: trainer_state.json, console output, event files, tables, run folders"


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Register the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser("doctor", help=HELP, description=HELP)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="log file or folder; several are also compared")
    parser.add_argument(
        "--config", metavar="FILE", help="settings of the run: recipe, TRL arguments, verl YAML, shell line"
    )
    parser.add_argument(
        "--map", action="append", default=[], metavar="NAME=KEY", dest="mapping", help="name a column, as reward=my/key"
    )
    parser.add_argument("--json", action="store_true", help="machine form on standard output")
    parser.add_argument("--html", metavar="FILE", help="write a self-contained report")
    parser.add_argument("--lang", choices=("en", "zh"), default="en", help="language of the sentences")
    parser.add_argument(
        "--fail-on", choices=("warning", "serious"), help="exit 5 on a finding of at least this severity"
    )
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Read, judge, show. Returns 0, or raises `DoctorObjection` (exit 5) with --fail-on.

    Raises:
        DataError: a path that holds no log.
    """
    from anygrpo.doctor import diagnose_log, read
    from anygrpo.doctor.configs import read_settings
    from anygrpo.doctor.pair import compared

    mapping = parse_mapping(args.mapping)
    settings = read_settings(args.config) if args.config else None
    diagnoses = compared([diagnose_log(read(path), mapping, settings) for path in args.paths])
    if args.json:
        from anygrpo.doctor.render.as_json import as_json

        found = [as_json(d, args.lang) for d in diagnoses]
        print(json.dumps(found[0] if len(found) == 1 else found, ensure_ascii=False, indent=2))
    else:
        from rich.console import Console

        from anygrpo.doctor.render.terminal import show

        console = Console(file=sys.stdout)
        for diagnosis in diagnoses:
            show(diagnosis, console, args.lang)
    if args.html:
        from anygrpo.doctor.render.page import page

        write(args.html, page(diagnoses, args.lang))
    return objection(diagnoses, args.fail_on)


def parse_mapping(pairs: list[str]) -> dict[str, str]:
    """["reward=my/key"] as a dict.

    Raises:
        ConfigError: no "=", or a name that is none of ours.
    """
    from anygrpo.doctor.columns import known_name

    out: dict[str, str] = {}
    for pair in pairs:
        name, sign, key = pair.partition("=")
        if not sign or not name or not key:
            raise ConfigError(f"--map {pair!r} is not NAME=KEY", "write it as --map reward=my/key")
        out[known_name(name)] = key
    return out


def write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", "choose another --html file") from None


def objection(diagnoses: list[Diagnosis], floor: str | None) -> int:
    """With --fail-on: 5 and a sentence for the first finding that weighs enough."""
    from anygrpo.doctor.findings import at_least

    if floor in ("warning", "serious"):
        for diagnosis in diagnoses:
            for finding in diagnosis.findings:
                if at_least(finding.severity, floor):
                    raise DoctorObjection(
                        f"{diagnosis.run.source}: {finding.rule} ({finding.severity})", "see the finding above"
                    )
    return 0
