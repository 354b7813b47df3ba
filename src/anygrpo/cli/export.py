"""`anygrpo export RUN`: the trained policy as files that its own library loads."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from anygrpo.cli.opening import add_checkpoint
from anygrpo.spoken import say


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "export",
        help="write a trained policy in its library's own form, certified",
        description=say(
            "What was written is loaded by the plain library in a process of its own and compared; where it could not "
            "be, the last line says so.",
            "写出的内容由原库在独立进程中加载并比对；无法比对时，最后一行会说明。",
        ),
    )
    parser.add_argument("run", help=say("a run folder, or a checkpoint's folder", "运行文件夹，或检查点文件夹"))
    add_checkpoint(parser)
    parser.add_argument(
        "--to",
        type=Path,
        metavar="FOLDER",
        help=say("default: export/ in the run folder", "默认：运行文件夹中的 export/"),
    )
    parser.add_argument(
        "--format",
        help=say(
            "the family's word for a format (language: peft, merged, full)",
            "策略所属的族对格式的称呼（语言：peft、merged、full）",
        ),
    )
    parser.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    """Exit code 0, or an error's: an export that is not certified leaves no files."""
    from anygrpo.export.exporting import export
    from anygrpo.export.opened import load

    opened = load(args.run, args.checkpoint, **({"device": args.device} if args.device else {}))
    folder = args.to or Path(args.run) / "export"
    files = export(opened, folder, args.format)
    found: dict[str, Any] = {}
    report: dict[str, Any] = {"source": opened.source, "folder": str(folder), "files": [str(file) for file in files]}
    certificate = folder / "export.json"
    if certificate.is_file():
        report["certificate"] = found = json.loads(certificate.read_text(encoding="utf-8"))
    if args.json:
        print(json.dumps(report, ensure_ascii=False, indent=2))
        return 0
    print(f"{opened.source} -> {folder}")
    for file in files:
        print(f"  {file.relative_to(folder) if file.is_relative_to(folder) else file}")
    if found.get("compared") is False:
        print(say(f"not compared: {found['why']}", f"未比对：{found['why']}"))
    return 0
