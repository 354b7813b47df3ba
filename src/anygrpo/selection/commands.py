"""`anygrpo select generate | inspect | evaluate`: stored candidates, and what a selector is worth."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError, DataError
from anygrpo.selection.commands_flags import add_parser
from anygrpo.spoken import Text, say

__all__ = ["add_parser", "run"]

_BATCH = 64


def run(args: argparse.Namespace) -> int:
    """Exit code 0, or an error's."""
    if args.flags and args.action not in ("generate", "fit"):
        raise ConfigError(
            Text(f"unknown arguments {args.flags}", f"未知的参数 {args.flags}"),
            Text(f"see anygrpo select {args.action} --help", f"见 anygrpo select {args.action} --help"),
        )
    from anygrpo.selection import commands_files

    actions = {"generate": _generate, "inspect": _inspect, "evaluate": _evaluate, "plan": _plan}
    actions |= {"fit": commands_files.fit, "pick": commands_files.pick}
    return actions[args.action](args)


# --- generate ------------------------------------------------------------------------------------------------


def _generate(args: argparse.Namespace) -> int:
    from anygrpo.selection.generate import Plan, generate
    from anygrpo.selection.layouts import write_stored
    from anygrpo.selection.pick_judge import Judging

    policy, task, _ = load(args.source, args.flags)
    judging = Judging(task)
    if judging.lengths is not None:
        raise ConfigError(
            Text(f"{args.source}: its task cannot judge new selections", f"{args.source}：它的任务不能评判新的选择"),
            Text("use a task that scores by a model", "请用由模型评分的任务"),
        )
    plan = Plan(args.beams, _temperatures(args.samples), args.random, args.retrieved)
    stored, queries = [], judging.training(args.queries)
    for start in range(0, len(queries), _BATCH):
        prompts = queries[start : start + _BATCH]
        rows = generate(policy, prompts, plan, args.seed + start)
        stored += [_judged(judging, prompt, row) for prompt, row in zip(prompts, rows)]
    write_stored(args.out, stored, args.layout)
    total = sum(len(q.candidates) for q in stored)
    then = f"anygrpo select inspect {args.out}"
    print(
        say(
            f"{args.out}: {len(stored)} queries, {total} candidates; {then}",
            f"{args.out}：{len(stored)} 个查询，{total} 个候选；{then}",
        )
    )
    return 0


def _temperatures(text: str) -> tuple[tuple[float, int], ...]:
    try:
        pairs = [part.split(":") for part in text.split(",") if part]
        return tuple((float(t), int(n)) for t, n in pairs)
    except ValueError:
        raise ConfigError(
            Text(f"--samples {text!r} is not a list of temperature:count", f"--samples {text!r} 不是 温度:数量 的列表"),
            Text("--samples 1.0:2,1.3:2", "例如 --samples 1.0:2,1.3:2"),
        ) from None


def _judged(judging: Any, prompt: dict[str, Any], row: list[Any]) -> Any:
    """One query's candidates with what the task says of them."""
    import torch

    from anygrpo.selection.parts import NAMES
    from anygrpo.selection.stored_query import Candidate, StoredQuery

    parts = judging.parts([prompt], [[g.selection for g in row]])
    if not NAMES.keys() & parts.keys():
        parts = {"score": parts["reward"]}
    candidates = []
    for i, g in enumerate(row):
        known = {n: float(x[0, i]) for n, x in parts.items() if n in NAMES and torch.isfinite(x[0, i])}
        if g.beam_score is not None:
            known["beam_score"] = g.beam_score
        failed = any(not torch.isfinite(x[0, i]) for n, x in parts.items() if n in NAMES)
        candidates.append(Candidate(g.selection, g.method, known, g.log_prob, g.temperature, g.rank, None, failed))
    query = {k: prompt[k] for k in ("text", "question", "answer") if isinstance(prompt.get(k), str | int | float)}
    ids = prompt.get("ids", range(len(prompt["candidates"])))
    return StoredQuery(str(prompt["id"]), tuple(ids), tuple(candidates), query)


# --- inspect -------------------------------------------------------------------------------------------------


def _inspect(args: argparse.Namespace) -> int:
    from anygrpo.errors import suggestion
    from anygrpo.selection.layouts import read_stored
    from anygrpo.selection.quality import inspect, richest
    from anygrpo.selection.rewards import MODES
    from anygrpo.selection.settings import RewardConfig
    from anygrpo.selection.spoken_rows import row

    if args.mode is not None and args.mode not in MODES:
        raise ConfigError(
            Text(f"unknown reward mode {args.mode!r}", f"未知的奖励方式 {args.mode!r}"), suggestion(args.mode, MODES)
        )
    stored = read_stored(args.file, args.index)
    config = RewardConfig(mode=args.mode or richest(stored) or "hard_plus_soft")  # type: ignore[arg-type]
    report = inspect(stored, config, args.min_score_when_wrong, args.fallback)
    if args.json:
        print(json.dumps(report, indent=2))
        return 0
    findings = report.pop("findings")
    for name, value in report.items():
        print(row(name, value, 26))
    nothing = say("\nNothing stands in the way.", "\n没有妨碍训练的问题。")
    print("\n" + "\n".join(f"! {finding}" for finding in findings) if findings else nothing)
    return 0


# --- evaluate ------------------------------------------------------------------------------------------------


def _evaluate(args: argparse.Namespace) -> int:
    from anygrpo.selection.evaluation import compare_runs
    from anygrpo.selection.spoken_rows import in_column, row, row_name
    from anygrpo.selection.subsets import by_training_queries, table

    flags = [f"--policy.evaluation-shots={args.shots}"] if args.shots else []
    groups = by_training_queries(args.run)
    reports = {
        n: compare_runs(
            [load(f, flags, args.split, args.queries) for f in runs], args.oracle_sets if n == max(groups) else 0
        )
        for n, runs in sorted(groups.items())
    }
    report = reports[max(reports)] | ({"by_training_queries": table(reports)} if len(reports) > 1 else {})
    if args.json:
        print(json.dumps(report, indent=2))
        return 0
    measure = say("accuracy", "正确率")
    if report["measure"] != "correct":
        measure = say(f"mean {report['measure']}", f"{report['measure']} 的均值")
    head = f"{report['queries']} held-out queries, {report['runs']} run(s); {measure}\n"
    print(say(head, f"{report['queries']} 个留出查询，{report['runs']} 次运行；{measure}\n"))
    print(f"{'':14s}" + "".join(f"{k:>10d} " + say("shots", "个示例") for k in report["shots"]))
    for name, levels in report["accuracy"].items():
        head = in_column(row_name(name), 14)
        print(head + "".join(f"{_cell(x):>16s}" for x in levels) + _judged_share(report, name))
    for name in report["unknown"]:
        print(in_column(row_name(name), 15) + say("unknown: nothing in the file judges it", "未知：文件中没有它的评判"))
    if report["oracle"]:
        print(say(f"\noracle: {report['oracle']}", f"\noracle（上限）：{report['oracle']}"))
    for line in report.get("by_training_queries", {}).get("text", ()):
        print(line)
    for title in ("paired", "more_shots", "change", "offline"):
        print()
        for name, value in (report[title] or {}).items():
            print(row(name, value))
    print("".join(say(f"\nnote: {note}", f"\n注意：{note}") for note in report["notes"]))
    return 0


def _plan(args: argparse.Namespace) -> int:
    from anygrpo.selection.evaluation import greedy, outcomes, with_weights
    from anygrpo.selection.pick_judge import Judging
    from anygrpo.selection.plan import plan, write_plan
    from anygrpo.selection.task import nearest

    policy, task, start = load(args.run)
    judging = Judging(task)
    prompts, shots = judging.held_out(), policy.config.evaluation_shots or policy.config.shots
    mine = greedy(policy, prompts)
    if args.against == "nearest":
        other = [nearest(p, shots) for p in prompts]
    elif args.against == "start":
        other = with_weights(policy, start, prompts)
    else:
        other = greedy(load(args.against)[0], prompts)
    found = [outcomes(judging, prompts, rows, [shots])[0] for rows in (mine, other)]
    made = plan((mine, other), (found[0], found[1]), ("policy", args.against), args.difference)
    if args.out:
        count = made.decides if args.calls is None and made.decides is not None else args.calls or len(made.asks)
        write_plan(args.out, made, prompts, count)
    report = {"sentence": made.sentence, "calls": made.decides, "unknown": len(made.asks), "file": args.out}
    print(json.dumps(report, default=str) if args.json else made.sentence + (f"\n{args.out}" if args.out else ""))
    return 0


def _cell(x: float | None) -> str:
    return say("unknown", "未知") if x is None else f"{x:.3f}"


def _judged_share(report: dict[str, Any], name: str) -> str:
    """Of a row that is not judged on all queries: on how many, and what all of them can amount to."""
    known, n = report["judged"][name][-1], report["queries"]
    if known == n:
        return ""
    low, high = report["bounds"][name][-1]
    return say(
        f"   judged: {known} of {n}; over all {low:.3f} to {high:.3f}",
        f"   {n} 个中评判了 {known} 个；全部的范围 {low:.3f} 到 {high:.3f}",
    )


def load(
    source: Any, flags: Any = (), split: str | None = None, queries: int | None = None, judge_alone: bool = True
) -> tuple[Any, Any, Any]:
    """Policy (a run's best weights), task, and the weights the run began with, from a recipe or a run folder."""
    from anygrpo.core.build import build_policy, build_task
    from anygrpo.core.trained import load_state, state_of
    from anygrpo.recipe.load import load_recipe
    from anygrpo.train import checkpoint

    path = Path(source)
    recipe = load_recipe(path / "config.toml" if path.is_dir() else path, list(flags))
    if recipe.policy.kind != "selector":
        raise ConfigError(
            Text(f"{path}: policy.kind = {recipe.policy.kind!r}", f"{path}：policy.kind = {recipe.policy.kind!r}"),
            Text("select works on selectors", "select 只用于选择器"),
        )
    policy = build_policy(recipe.policy, recipe.seed)
    start = {name: tensor.clone() for name, tensor in state_of(policy.trainable()).items()}
    if path.is_dir():
        best = path / "checkpoints" / "best"
        weights = best if best.is_dir() else checkpoint.newest(path / "checkpoints")
        if weights is None:
            raise DataError(Text(f"{path} holds no complete checkpoint", f"{path} 中没有完整的检查点"))
        load_state(policy.trainable(), checkpoint.load(weights)[0])
    section = recipe.resolved_stages()[-1].task
    if judge_alone:
        live = getattr(section, "live", None)
        section = live if live is not None and live.kind not in ("judged", "python") else section
    return policy, build_task(_held_out(section, split, queries), recipe.seed), start


def _held_out(section: Any, split: str | None, queries: int | None) -> Any:
    """The task section with another held-out split, or more queries in it.

    Raises:
        ConfigError: a task that has no such choice.
    """
    changes: dict[str, Any] = {}
    if split:
        if not hasattr(section, "held_out_split"):
            raise ConfigError(
                Text(
                    f"--split {split}: task.kind = {section.kind!r} has one held-out set",
                    f"--split {split}：task.kind = {section.kind!r} 只有一个留出集",
                ),
                Text("leave it out", "请不要给出它"),
            )
        changes["held_out_split"] = split
    if queries:
        chosen = split or getattr(section, "held_out_split", None)
        name = f"held_out_{chosen}" if chosen else "held_out"
        if not hasattr(section, name):
            cure = Text("task.held_out_share is its held-out share", "它的留出比例是 task.held_out_share")
            raise ConfigError(
                Text(
                    f"--queries {queries}: task.kind = {section.kind!r} has a fixed number of queries",
                    f"--queries {queries}：task.kind = {section.kind!r} 的查询数是固定的",
                ),
                cure,
            )
        changes[name] = queries
    return section.model_copy(update=changes)
