"""`anygrpo check recipe.toml [--table.key value ...]`: pre-flight, about a minute."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from anygrpo.errors import ConfigError
from anygrpo.recipe.load import apply_flags, load_recipe
from anygrpo.spoken import LANGUAGES, Text, current, say


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "check",
        help="test a recipe in a minute, before it runs",
        description=say(
            "Probes the recipe's real policy, data and rewards. Exit code 5 on a serious fault.",
            "用配方真实的策略、数据和奖励做检查。有严重问题时退出码为 5。",
        ),
    )
    parser.add_argument(
        "recipe",
        help=say(
            "a .toml file, or path.py:factory of a policy of your own; settings as flags",
            ".toml 文件，或你自己的策略 path.py:factory；设置作为参数给出",
        ),
    )
    parser.add_argument(
        "--task",
        metavar="PATH.PY:CLASS",
        help=say("the task that a policy of your own is tried on", "用来试你自己策略的任务"),
    )
    parser.add_argument(
        "--prompts",
        metavar="PATH.PY:NAME",
        help=say("prompts to try it on, where there is no task", "没有任务时用来试的提示"),
    )
    parser.add_argument(
        "--stage", help=say("which stage; default: the first that samples", "哪个阶段；默认：第一个抽样的阶段")
    )
    parser.add_argument(
        "--kl-per-update",
        type=float,
        default=1e-3,
        help=say("KL that the recommended rate moves in one update", "推荐的学习率在一次更新中移动的 KL"),
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help=say("time for the probes, roughly", "检查的大致用时")
    )
    parser.add_argument("--lang", choices=LANGUAGES, default=current())
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(takes_flags=True)


def run(args: argparse.Namespace) -> int:
    """Probe and print; 5 on a serious fault, else 0."""
    from anygrpo.probes import check

    recipe, task, only = _tried(args)
    report = check(recipe, args.stage, args.kl_per_update, args.seconds, task, only)
    if args.json:
        print(json.dumps(as_json(args.recipe, report, args.lang), ensure_ascii=False, indent=2))
    else:
        print_report(report, args.lang)
    return 5 if report.serious else 0


def _tried(args: argparse.Namespace) -> tuple[Any, Any, Any]:
    """The recipe and all probes; or, of a policy of the user's own, a recipe and task to try it on, and its probes."""
    if ".py:" not in args.recipe:
        if args.task or args.prompts:
            raise ConfigError(
                Text(f"{args.recipe} has a task of its own", f"{args.recipe} 有自己的任务"),
                Text("leave --task and --prompts out", "请不要给出 --task 与 --prompts"),
            )
        return load_recipe(args.recipe, args.flags), None, ()
    from anygrpo.probes.conformance import KIT, kit

    tables: dict[str, Any] = {}
    apply_flags(tables, args.flags)
    return *kit(args.recipe, args.task, args.prompts, tables), KIT


def as_json(source: str, report: Any, language: str) -> dict[str, Any]:
    """The outcomes in the schema of the doctor's findings; numbers that JSON cannot hold are written as text."""
    statuses = [o.status for o in report.outcomes]
    verdict = next((s for s in ("serious", "warning") if s in statuses), "ok")
    return {
        "source": source,
        "format": "recipe",
        "stage": report.stage,
        "seconds": round(report.seconds, 2),
        "verdict": verdict,
        "findings": [_finite(o.as_dict(language)) for o in report.outcomes],
    }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


_MARKS = {
    "ok": ("green", Text("ok", "正常")),
    "warning": ("yellow", Text("warning", "警告")),
    "serious": ("bold red", Text("serious", "严重")),
    "not applicable": ("dim", Text("n/a", "不适用")),
}


def print_report(report: Any, language: str) -> None:
    """A table of outcomes, then the learning rates that were tried."""
    from rich.console import Console
    from rich.table import Table

    console, lang = Console(), language
    title = say(f"stage {report.stage}, {report.seconds:.0f} s", f"阶段 {report.stage}，{report.seconds:.0f} 秒", lang)
    table = Table(title=title, title_justify="left", show_lines=False)
    table.add_column(say("probe", "检查", lang), no_wrap=True)
    table.add_column(say("status", "结果", lang), no_wrap=True)
    table.add_column(say("what was seen", "所见", lang), overflow="fold")
    for outcome in report.outcomes:
        style, mark = _MARKS[outcome.status]
        text, cure = outcome.say(language), outcome.prescribe(language)
        what = f"{text}\n-> {cure}" if cure and outcome.status != "ok" else text
        table.add_row(outcome.probe, f"[{style}]{mark.said(lang)}[/]", _plain(what))
    console.print(table)
    rates = next((o.rows for o in report.outcomes if o.probe == "learning_rate"), [])
    if rates:
        console.print(_rates(rates, lang))


def _plain(text: str) -> Any:
    from rich.text import Text

    return Text(text)


def _rates(rows: list[dict[str, Any]], lang: str) -> Any:
    from rich.table import Table

    title = say("what one update moves, on held-out prompts", "一次更新移动多少（留出提示）", lang)
    table = Table(title=title, title_justify="left")
    for heading in (
        say("rate", "学习率", lang),
        "KL",
        say("|ratio - 1|", "|概率比 - 1|", lang),
        say("largest |log-ratio|", "最大 |对数概率比|", lang),
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*(f"{row[k]:.2e}" for k in ("rate", "kl", "ratio_change", "log_ratio_abs_max")))
    return table
