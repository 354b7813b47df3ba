"""`anygrpo evaluate RUN [RUN]`: held-out measures with intervals; of two, their difference on the same prompts."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from anygrpo.cli.opening import add_checkpoint, add_trust
from anygrpo.scratch import Scratch
from anygrpo.spoken import Text, say
from anygrpo.watch.progress import held_out_name


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "evaluate",
        help="held-out measures of a run, an export or a base model, with intervals",
        description=say(
            "Of two (before, after) also the gain on the same prompts; of one run the gain over what it started from. "
            "Intervals are over prompts.",
            "给两个（训练前、训练后）时还给出相同提示上的增益；给一个运行时给出相对训练前的增益。区间针对提示。",
        ),
    )
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help=say("a run folder, a checkpoint, an export or a base model", "运行文件夹、检查点、导出或基座模型"),
    )
    parser.add_argument(
        "--task",
        metavar="RECIPE",
        help=say(
            "measure on this recipe's task; default: the first run's", "用这个配方的任务来测；默认：第一个运行的任务"
        ),
    )
    parser.add_argument(
        "--held-out", metavar="FILE", help=say("held-out prompts of a text task", "文本任务的留出集提示")
    )
    parser.add_argument(
        "--prompts",
        type=int,
        help=say(
            "at most so many; default: as the recipe says, of --held-out all",
            "最多这么多个；默认按配方，--held-out 的文件则全部",
        ),
    )
    parser.add_argument(
        "--samples",
        type=int,
        default=1,
        help=say("also so many drawn answers: mean, best, pass@k", "另外抽样这么多个回答：平均、最好、pass@k"),
    )
    parser.add_argument(
        "--k", type=int, help=say("pass@k of the samples; default 1 and all of them", "样本的 pass@k；默认 1 和全部")
    )
    add_checkpoint(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help=say("keep a row a prompt here, a file for each RUN", "在此保存每个提示一行，每个 RUN 一个文件"),
    )
    add_trust(parser)
    parser.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    """Exit code 0, or an error's."""
    from anygrpo.export.evaluating import measured, own_start, paired, recipe_of, settings_of, task_of
    from anygrpo.export.opened import load

    settings: dict[str, Any] = {"trust": args.trust} | ({"device": args.device} if args.device else {})
    recipe = recipe_of(args.runs, args.task)
    opened = [load(run, args.checkpoint, like=recipe and recipe.policy, **settings) for run in args.runs]
    task = task_of(recipe, args.held_out, args.prompts)
    config = settings_of(recipe, task, args.prompts, args.samples, args.k, args.held_out is not None)
    with Scratch("evaluate") as scratch:
        folder = args.out or scratch
        files = [folder / f"{i}.jsonl" for i in range(len(opened))]
        found = [measured(o, task, config, args.samples, args.k, f) for o, f in zip(opened, files)]
        gains = [paired(files[0], file) for file in files[1:]]
        start = own_start(args.runs[0], files[0]) if len(files) == 1 and not (args.task or args.held_out) else None
    task.close()
    if args.json:
        print(json.dumps({"runs": found, "gains": gains, "own_start": start}, ensure_ascii=False, indent=2))
        return 0
    for row in found:
        print("\n".join(_lines(row)))
    for run_, gain in zip(args.runs[1:], gains):
        prompts = gain["prompts"]
        print(_gained(gain, Text(f"{run_} - {args.runs[0]}", f"{run_} 减 {args.runs[0]}"),
                      Text(f" on {prompts} prompts", f"（{prompts} 个提示）")))  # fmt: skip
    if start is not None:
        prompts = start["prompts"]
        print(_gained(start, Text("gain over what it started from", "相对训练前的增益"),
                      Text(f", on the same {prompts} prompts", f"（相同的 {prompts} 个提示）")))  # fmt: skip
    return 0


def _gained(gain: dict[str, Any], what: Text, over: Text) -> str:
    if gain["gain"] is None:
        none = Text(": no prompt was judged on both sides", "：没有两边都评判过的提示")
        return (what + none).said()
    return (what + over).said() + say(": reward ", "：奖励 ") + f"{_interval(gain['gain'], '+')}\n{_same(gain)}"


def _same(gain: dict[str, Any]) -> str:
    parts = "".join(f"  {name} {_interval(value, '+')}\n" for name, value in gain["parts"].items())
    return parts + say(
        f"  same output: {gain['same_output']:.1%}; the interval covers prompts, not seeds",
        f"  输出相同：{gain['same_output']:.1%}；区间只覆盖提示，不覆盖种子",
    )


def _lines(row: dict[str, Any]) -> list[str]:
    judged, prompts = row["judged"], round(row["numbers"]["eval/prompts"])
    over = say(f"over {judged} prompts", f"（{judged} 个提示）")
    if judged != prompts:
        over = say(
            f"over {judged} of {prompts} prompts, the others unscored",
            f"（{prompts} 个提示中的 {judged} 个，其余无法打分）",
        )
    lines = [row["source"], f"  {say('reward', '奖励')} {_interval(row['reward'])} {over}"]
    hidden = ("eval/prompts", "eval/reward", "eval/reward_se")
    parts = dict(row["parts"])
    for name, value in row["numbers"].items():
        part = parts.get(name.removeprefix("eval/"))
        if part is not None and math.isclose(part["mean"], value, rel_tol=1e-4, abs_tol=1e-6):
            lines.append(f"  {held_out_name(name)} {_interval(parts.pop(name.removeprefix('eval/')))}")
        elif name not in hidden:
            lines.append(f"  {held_out_name(name)} {value:.4g}")
    lines += [f"  {name} {_interval(value)} {say('(of the score)', '（得分的一项）')}" for name, value in parts.items()]
    for name, value in row.get("samples", {}).items():
        if name != "n":
            of = say(f"{name} of {row['samples']['n']}: ", f"{row['samples']['n']} 个样本的 {name}：")
            lines.append(f"  {of}{_interval(value)}")
    return lines


def _interval(x: dict[str, Any], sign: str = "") -> str:
    return f"{x['mean']:{sign}.4f} [{x['low']:{sign}.4f}, {x['high']:{sign}.4f}]"
