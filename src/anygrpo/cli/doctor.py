"""`anygrpo doctor PATH...`: what is wrong with a training run, from its log alone."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anygrpo.cli.modes import mode_of
from anygrpo.cli.page_file import written
from anygrpo.errors import ConfigError, DataError, DoctorObjection
from anygrpo.spoken import LANGUAGES, Text, current, say

if TYPE_CHECKING:
    from anygrpo.doctor import Diagnosis

HELP = Text(
    "diagnose a training log: trainer_state.json, console output, event files, tables, run folders",
    "诊断训练日志：trainer_state.json、控制台输出、事件文件、表格、运行文件夹",
)


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Register the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser("doctor", help=HELP.said(), description=HELP.said())
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help=say(
            "log file or folder, or - for standard input; several are also compared",
            "日志文件或文件夹，- 表示标准输入；给多个时还会互相比较",
        ),
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help=say(
            "settings of the run: recipe, TRL arguments, verl YAML, shell line",
            "运行的设置：配方、TRL 参数、verl YAML、shell 行",
        ),
    )
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="NAME=KEY|FILE",
        dest="mapping",
        help=say(
            "name a column, as reward=my/key, or give a map that --save-map wrote",
            "指定列名，如 reward=my/key，或给出 --save-map 写下的对应表",
        ),
    )
    parser.add_argument(
        "--save-map",
        metavar="FILE",
        help=say("write which column was read as what, for --map", "写下哪一列被读作什么，供 --map 使用"),
    )
    parser.add_argument(
        "--rules",
        action="store_true",
        help=say("list every rule, in causal order, and stop", "按因果顺序列出所有规则，然后停止"),
    )
    parser.add_argument(
        "--plan",
        action="store_true",
        help=say("list the experiment that decides each suspicion", "列出判定每个怀疑的实验"),
    )
    parser.add_argument(
        "--confirm",
        action="store_true",
        help=say("run those experiments on a run folder of ours", "在本工具的运行文件夹上做这些实验"),
    )
    parser.add_argument(
        "--suspect",
        action="append",
        default=[],
        metavar="RULE",
        help=say("with --confirm: try this rule, suspected or not", "与 --confirm 同用：试这条规则，不论是否被怀疑"),
    )
    parser.add_argument(
        "--budget",
        type=float,
        metavar="S",
        help=say("with --confirm: seconds for each experiment, roughly", "与 --confirm 同用：每个实验大约的秒数"),
    )
    parser.add_argument(
        "--samples",
        metavar="PATH",
        help=say(
            "read what was written: completions tables, rollout dumps", "阅读写下的内容：completions 表、rollout 转储"
        ),
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help=say("watch one growing log until it ends or Ctrl-C", "跟踪一个正在增长的日志，直到结束或 Ctrl-C"),
    )
    parser.add_argument(
        "--on-serious",
        metavar="COMMAND",
        help=say(
            "with --follow: run this once for each serious finding", "与 --follow 同用：每个严重发现运行一次这条命令"
        ),
    )
    parser.add_argument(
        "--every",
        type=float,
        metavar="S",
        help=say("with --follow: seconds between looks", "与 --follow 同用：两次查看之间的秒数"),
    )
    parser.add_argument(
        "--json", action="store_true", help=say("machine form on standard output", "在标准输出上给出机器可读的形式")
    )
    parser.add_argument("--html", metavar="FILE", help=say("write a self-contained report", "写一份自足的报告"))
    parser.add_argument(
        "--lang", choices=LANGUAGES, default=current(), help=say("language of the sentences", "句子的语言")
    )
    parser.add_argument(
        "--fail-on",
        choices=("warning", "serious"),
        help=say("exit 5 on a finding of at least this severity", "有不低于此严重程度的发现时，退出码为 5"),
    )
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Read, judge, show. Returns 0, or raises `DoctorObjection` (exit 5) with --fail-on.

    Raises:
        DataError: a path that holds no log.
    """
    mode = mode_of(args)
    if mode == "rules":
        return list_rules(args.lang, args.json)
    if mode == "samples":
        return show_samples(args)
    if not args.paths:
        raise ConfigError(
            Text("no log given", "没有给出日志"),
            Text("give a log file or folder, or - for standard input", "请给出日志文件或文件夹，或用 - 表示标准输入"),
        )
    if mode == "confirm":
        return show_confirmed(args)
    return show_followed(args) if mode == "follow" else show_diagnoses(args)


def show_diagnoses(args: argparse.Namespace) -> int:
    """Each log's findings, or with --plan its experiments."""
    from anygrpo.doctor import diagnose_log
    from anygrpo.doctor.configs import read_settings
    from anygrpo.doctor.maps import of_all, parse_mapping
    from anygrpo.doctor.pair import compared
    from anygrpo.doctor.readers import read_all

    found = parse_mapping(args.mapping)
    settings = read_settings(args.config) if args.config else None
    logs = [log for path in args.paths for log in read_all(path)]
    found.check(logs)
    diagnoses = compared([diagnose_log(log, found.names, settings) for log in logs])
    if args.save_map:
        text = json.dumps(of_all([d.run.map() for d in diagnoses]), ensure_ascii=False, indent=2)
        written(args.save_map, text + "\n", "--save-map")
    if args.html:
        from anygrpo.doctor.render.page import page

        written(args.html, page(diagnoses, args.lang))
    if args.plan:
        show_plan(diagnoses, args.lang, args.json)
    else:
        show_found(diagnoses, args.lang, args.json)
    return objection(diagnoses, args.fail_on)


def show_found(diagnoses: list[Diagnosis], lang: str, as_machine: bool) -> None:
    """The findings, for a person or a machine."""
    if as_machine:
        from anygrpo.doctor.render.as_json import as_json

        found = [as_json(d, lang) for d in diagnoses]
        print(json.dumps(found[0] if len(found) == 1 else found, ensure_ascii=False, indent=2))
        return
    from rich.console import Console

    from anygrpo.doctor.render.terminal import show

    console = Console(file=sys.stdout)
    for diagnosis in diagnoses:
        show(diagnosis, console, lang)


def show_followed(args: argparse.Namespace) -> int:
    """Watch one growing log."""
    from anygrpo.doctor.configs import read_settings
    from anygrpo.doctor.follow import follow
    from anygrpo.doctor.maps import parse_mapping
    from anygrpo.doctor.readers import read_all
    from anygrpo.doctor.readers.long import several

    if len(args.paths) != 1 or args.paths[0] == "-":
        raise ConfigError(
            Text(
                f"--follow watches one file or folder, not {args.paths}",
                f"--follow 只跟踪一个文件或文件夹，而不是 {args.paths}",
            ),
            Text("start one for each log", "每个日志各启动一个"),
        )
    found = parse_mapping(args.mapping)
    settings = read_settings(args.config) if args.config else None
    try:
        logs = read_all(args.paths[0])
    except DataError:  # not there yet, or half a line
        logs = []
    if len(logs) > 1:
        raise several(args.paths[0], [log.source.removeprefix(f"{args.paths[0]}: ") for log in logs])
    try:
        found.check(logs)
    except ConfigError as error:  # the column may come later
        print(f"{error.what}; {error.cure}", file=sys.stderr)
    every = 10.0 if args.every is None else args.every
    return follow(args.paths[0], found.names, settings, args.lang, args.on_serious, every)


def list_rules(lang: str, as_json: bool) -> int:
    """Every rule in causal order: id, kind, what it says, what it must not be confused with."""
    from anygrpo.doctor.rules import RULES

    rows = [
        {"rule": r.id, "stage": r.stage, "kind": r.certainty}
        | {"says": r.words["title"].said(lang), "unlike": r.words["unlike"].said(lang)}
        for r in RULES.values()
    ]
    table = "\n".join(f"{r['stage']:10} {r['rule']:22} {r['kind']:8} {r['says']}" for r in rows)
    print(json.dumps(rows, ensure_ascii=False, indent=2) if as_json else table)
    return 0


def show_plan(diagnoses: list[Diagnosis], lang: str, as_json: bool) -> None:
    """Per suspicion the experiment that decides it."""
    from anygrpo.doctor.experiments import NONE, plan

    rows = [{"source": d.run.source} | row for d in diagnoses for row in plan(d.findings, lang)]
    table = "\n".join(f"{r['rule']}: {r['do']} -> {r['confirms']}" for r in rows)
    print(json.dumps(rows, ensure_ascii=False, indent=2) if as_json else table or NONE.said(lang))


def show_confirmed(args: argparse.Namespace) -> int:
    """Each suspicion of one of our runs, before and after its experiment."""
    from anygrpo.probes.confirm import confirm

    if len(args.paths) != 1:
        raise ConfigError(
            Text(
                f"--confirm takes one run folder, not {len(args.paths)}",
                f"--confirm 只接受一个运行文件夹，而不是 {len(args.paths)} 个",
            ),
            Text("give one after the other", "请逐个给出"),
        )
    budget = 60.0 if args.budget is None else args.budget
    found = [c.as_dict(args.lang) for c in confirm(Path(args.paths[0]), budget, args.suspect)]
    if args.json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
        return 0
    lang = args.lang
    if not found:
        print(say("no suspicion to confirm: what was found is certain, or nothing was", "没有需要证实的怀疑", lang))
    after = {
        "confirmed": say("confirmed", "成立", lang),
        "refuted": say("refuted", "不成立", lang),
        "undecided": say("undecided", "无法判定", lang),
    }
    for row in found:
        print(f"{row['rule']}: {row['before']} -> {after[row['after']]} ({row['seconds']} s)")
        print(f"  {row['title']}\n  {row['do']}\n  {row['evidence']}")
    return 0


def show_samples(args: argparse.Namespace) -> int:
    """What high-advantage answers share against low ones."""
    from anygrpo.doctor.samples import read_samples
    from anygrpo.doctor.study import study, text_of

    found = study(read_samples(args.samples))
    print(json.dumps(found.as_dict(), ensure_ascii=False, indent=2) if args.json else text_of(found, args.lang))
    return 0


def objection(diagnoses: list[Diagnosis], floor: str | None) -> int:
    """With --fail-on: 5 and a sentence for the first finding that weighs enough."""
    from anygrpo.doctor.findings import at_least

    if floor in ("warning", "serious"):
        for diagnosis, finding in ((d, f) for d in diagnoses for f in d.findings if at_least(f.severity, floor)):
            said = f"{diagnosis.run.source}: {finding.rule} ({finding.severity})"
            raise DoctorObjection(said, Text("see the finding above", "见上面的发现"))
    return 0
