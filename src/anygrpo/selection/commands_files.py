"""`anygrpo select fit | pick`: two commands from a user's files to picks."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from anygrpo.spoken import say


def add_parsers(actions: Any) -> list[argparse.ArgumentParser]:
    fit = actions.add_parser(
        "fit",
        help=say(
            "a file of scored selections -> a portable selector, compared with retrieval",
            "由打分的选择文件得到可携带的选择器，并与检索比较",
        ),
    )
    fit.add_argument("file", type=Path)
    fit.add_argument(
        "--queries",
        required=True,
        type=Path,
        help=say(
            "embeddings (.npz .npy .pt .parquet) or JSONL of texts", "嵌入（.npz .npy .pt .parquet）或 JSONL 文本"
        ),
    )
    fit.add_argument("--candidates", required=True, type=Path)
    fit.add_argument(
        "--scorer",
        help=say(
            "path.py:judge or a TOML file with [scorer]: then GRPO against it follows",
            "path.py:judge 或含 [scorer] 的 TOML 文件：随后据此做 GRPO",
        ),
    )
    fit.add_argument(
        "--out",
        required=True,
        type=Path,
        help=say("folder for selector/, run/ and recipe.toml", "存放 selector/、run/ 和 recipe.toml 的文件夹"),
    )
    fit.add_argument(
        "--embedding",
        default="minilm",
        help=say("for JSONL: minilm, ngrams, a path or Hub name", "对 JSONL：minilm、ngrams、路径或 Hub 名称"),
    )
    fit.add_argument(
        "--mode",
        help=say(
            "reward mode; the richest that the file allows where left out", "奖励方式；不给则取文件所允许的最丰富的一种"
        ),
    )
    pick = actions.add_parser("pick", help=say("a selector's picks for queries", "选择器为各查询挑选的示例"))
    pick.add_argument(
        "selector", type=Path, help=say("folder that select fit or export wrote", "select fit 或 export 写出的文件夹")
    )
    pick.add_argument("--queries", required=True, type=Path)
    pick.add_argument("--candidates", required=True, type=Path)
    pick.add_argument("--out", required=True, type=Path, help="JSONL")
    pick.add_argument(
        "--pool",
        type=int,
        help=say(
            "nearest candidates that a query chooses among (0: all); as in training where left out",
            "每个查询从最近的这么多候选中挑选（0：全部）；不给则与训练时相同",
        ),
    )
    pick.add_argument(
        "--ids",
        choices=("one", "two"),
        help=say(
            "one: a query is not its own candidate; as in training where left out",
            "one：查询不能是自己的候选；不给则与训练时相同",
        ),
    )
    pick.add_argument(
        "--embedding", help=say("for JSONL; as in training where left out", "对 JSONL；不给则与训练时相同")
    )
    pick.add_argument(
        "--seed",
        type=int,
        help=say("draw from the probabilities; the likeliest picks where left out", "按概率抽取；不给则取最可能的挑选"),
    )
    return [fit, pick]


def fit(args: argparse.Namespace) -> int:
    from anygrpo.selection.fit import fit as fit_selector
    from anygrpo.selection.spoken_rows import row

    given = {"scorer": args.scorer, "embedding": args.embedding, "mode": args.mode, "flags": tuple(args.flags)}
    made = fit_selector(args.file, args.queries, args.candidates, args.out, **given)
    if args.json:
        report = {"selector": str(made.folder), "mode": made.mode, "inspect": made.inspected, "evaluate": made.compared}
        print(json.dumps(report, indent=2))
        return 0
    about, compared = made.inspected, made.compared
    queries, usable, candidates = about["queries"], about["usable"], about["candidates"]
    print(
        say(
            f"{args.file}: {queries} queries, {usable} of {candidates} candidates usable",
            f"{args.file}：{queries} 个查询，{candidates} 个候选中 {usable} 个可用",
        )
    )
    print(say(f"layout {about['layout']}, reward {made.mode}", f"格式 {about['layout']}，奖励 {made.mode}"))
    print("".join(f"! {finding}\n" for finding in about["findings"]))
    for name, value in {**compared["paired"], **(compared["offline"] or {})}.items():
        print(row(name, f"{value:.3f}" if isinstance(value, float) else value))
    print("".join(f"! {note}\n" for note in compared["notes"]))
    print(f"{made.folder}: anygrpo select pick {made.folder} --queries ... --candidates ... --out picks.jsonl")
    return 0


def pick(args: argparse.Namespace) -> int:
    from anygrpo.selection.apply import apply
    from anygrpo.selection.export import load

    inputs = {"queries": args.queries, "candidates": args.candidates}
    told = {"pool": args.pool, "ids": args.ids, "embedding": args.embedding}
    inputs |= {name: value for name, value in told.items() if value is not None}
    shown = (lambda done, n: print(f"{done} of {n}", file=sys.stderr)) if sys.stderr.isatty() else None
    rows = apply(load(args.selector), inputs, args.out, seed=args.seed, progress=shown)
    lists = len({tuple(row["picks"]) for row in rows})
    report = {"queries": len(rows), "different_lists": lists, "out": str(args.out)}
    said = say(
        f"{args.out}: {len(rows)} queries, {lists} different lists",
        f"{args.out}：{len(rows)} 个查询，{lists} 种不同的选择",
    )
    print(json.dumps(report) if args.json else said)
    return 0
