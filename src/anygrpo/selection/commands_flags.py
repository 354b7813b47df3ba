"""The words of `anygrpo select`: its actions and their flags."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from anygrpo.spoken import say


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("select", help="generate and inspect stored demonstrations")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    generate = actions.add_parser(
        "generate",
        help=say(
            "write scored candidates: beams, samples, random, retrieved", "写出打分的候选：beam、抽样、随机、检索"
        ),
    )
    generate.add_argument(
        "source",
        help=say(
            "a recipe (its policy as it starts), or a run folder (its best checkpoint)",
            "配方（其初始策略），或运行文件夹（其最好的检查点）",
        ),
    )
    generate.add_argument("--out", required=True, type=Path)
    generate.add_argument("--queries", type=int, default=800)
    generate.add_argument("--beams", type=int, default=5)
    generate.add_argument("--samples", default="1.0:2,1.3:2", help=say("temperature:count, ...", "温度:个数，…"))
    generate.add_argument("--random", type=int, default=1)
    generate.add_argument("--retrieved", type=int, default=5)
    generate.add_argument("--layout", choices=("pool", "fixed", "legacy"), default="pool")
    generate.add_argument("--seed", type=int, default=0)
    inspect = actions.add_parser("inspect", help=say("quality of a file of stored candidates", "存储候选文件的质量"))
    inspect.add_argument("file", type=Path)
    inspect.add_argument(
        "--mode", help=say("reward mode; the richest that the file allows", "奖励方式；默认取文件允许的最全的一种")
    )
    inspect.add_argument("--index", choices=("auto", "global", "local"), default="auto")
    inspect.add_argument("--min-score-when-wrong", type=float, default=0.0)
    inspect.add_argument(
        "--fallback", choices=("skip", "keep"), default="skip", help=say("rows judged by a stand-in", "由替身打分的行")
    )
    evaluate = actions.add_parser(
        "evaluate",
        help=say("a run's policy beside its start and the baselines, paired", "一次运行的策略，与起点和各基线配对比较"),
    )
    evaluate.add_argument(
        "run", type=Path, nargs="+", help=say("run folders that differ in their seed", "仅种子不同的运行文件夹")
    )
    evaluate.add_argument(
        "--split", choices=("validation", "test"), help=say("demonstrations: which queries", "示例：哪些查询")
    )
    evaluate.add_argument("--queries", type=int, help=say("held-out queries", "留出集查询"))
    evaluate.add_argument(
        "--shots",
        type=int,
        help=say(
            "picks of the greedy decoder, 4 say, whatever training used", "贪心解码的挑选数，例如 4，不论训练时用多少"
        ),
    )
    evaluate.add_argument(
        "--oracle-sets",
        type=int,
        default=600,
        help=say("sets of a size tried for a query; 0: no oracle", "每个查询每种大小所试的组合数；0：不做上界"),
    )
    plan = actions.add_parser(
        "plan",
        help=say(
            "which selections to score next, so that a file decides a comparison",
            "接下来给哪些选择打分，才能由文件判定一项比较",
        ),
    )
    plan.add_argument(
        "run", type=Path, help=say("run folder, trained from stored candidates", "用存储候选训练的运行文件夹")
    )
    plan.add_argument(
        "--against",
        default="start",
        help=say("start, nearest, or another run folder", "start、nearest 或另一个运行文件夹"),
    )
    plan.add_argument(
        "--difference",
        type=float,
        default=0.05,
        help=say("in accuracy: what shall be told from 0", "以正确率计：多大的差别要能与 0 区分"),
    )
    plan.add_argument("--out", type=Path, help=say("write them as a file to be scored", "把它们写成待打分的文件"))
    plan.add_argument(
        "--calls",
        type=int,
        help=say("at most this many of them; as many as decide where left out", "最多这么多个；不给则以足够判定为准"),
    )
    from anygrpo.selection import commands_files

    for one in (inspect, evaluate, plan, *commands_files.add_parsers(actions)):
        one.add_argument("--json", action="store_true")
    parser.set_defaults(takes_flags=True)
