"""Which of several runs are one arm over its seeds: stated, by wandb's group, by their settings, names or folders."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.settings import concept_of
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

Arms = dict[str, list[int]]
"""arm -> places of its runs."""

STAMP = re.compile(r"[-_. ]?(?:19|20)\d{2}-?\d{2}-?\d{2}(?:[-_T ]?\d{2}[-:h]?\d{2}(?:[-:m]?\d{2})?)?")
SEEDS = (
    re.compile(r"(?<![a-z])(?:random[-_]?)?(?:seed|sd|s|rep|repeat|trial|run|fold)[-_=]?\d+(?![a-z0-9])", re.I),
    re.compile(r"(?:^|(?<![0-9]e)[-_ ]|(?<![0-9])\.)\d+$"),
)
"""What marks a seed in a name, surest first: "seed3", "s3", "run_3"; a number at its end ("1e-6" and "0.04" are none).
"""
OF_RUN = "run|exp|experiment|job|trial|session|wandb|tracker|hydra|tensorboard|tb|log|logger|logging"
PLACE = f"{OF_RUN}|output|out|save|checkpoints?|ckpt|work|working|results?|cache|local|root|tmp|temp|dump|default"
APART = re.compile(
    r"(?:[a-z0-9]+_)*seeds?|[a-z]+seed|seed_(?:everything|offset|id)"
    rf"|(?:(?:{OF_RUN}|project|display|version)_)+(?:name|group|id|tags?|notes)|hub_model_id|job_type|entity"
    rf"|(?:(?:{PLACE})_)+(?:dir|directory|folder|root|path|file)|(?:log|save|output|out)_to"
    r"|(?:hostname|host|ip|port|(?:master|main_process|node|server|vllm|head)_(?:\w+_)?(?:host|ip|addr|port))"
    r"|(?:(?:local|node|global|machine)_)?rank|process_id|pid|uuid|global_step|current_step"
    r"|(?:start|end|begin|created|launch)?_?(?:time|timestamp|date|datetime|at)"
)
"""Last parts of settings that may differ between the seeds of one arm: its seeds, names, places, machines, times."""
BARE = re.compile(r"name|group|id|tags?|notes|dir|directory|folder|path|step")
"""Last parts that are the run's own where they stand alone or below one of OF_RUN: "wandb.name", not "model.name"."""
SUFFIX = re.compile(
    r"\.(?:(?:jsonl?|log|out|txt)\.\d{1,3}|jsonl?|csv|tsv|log|out|txt|wandb|md|ya?ml|gz|zst|bz2|xz)$", re.I
)
"""Endings of files, "log.1" of a rotated log among them. A number alone is none: "kl0.04"."""


def grouped(runs: Sequence[Columns], stated: Sequence[str] = ()) -> tuple[Arms, str]:
    """(arms, how they were found) of runs; every run its own arm where nothing tells.

    Args:
        stated: an arm's name for each run, from the command line; it wins.

    Raises:
        ConfigError: fewer than two arms were stated.
    """
    if stated:
        arms = collected(stated)
        if len(arms) < 2:
            raise ConfigError(
                Text(f"one arm was stated: {next(iter(arms))}", f"只说明了一个实验臂：{next(iter(arms))}"),
                Text("state two: --arm A=runs/a* --arm B=runs/b*", "请给出两个：--arm A=runs/a* --arm B=runs/b*"),
            )
        return arms, "stated"
    ways: tuple[tuple[str, Callable[[], list[str] | None]], ...] = (
        ("wandb group", lambda: of_setting(runs, "wandb.group")),
        ("settings", lambda: of_settings(runs)),
        ("names", lambda: of_names([r.source for r in runs])),
        ("folders", lambda: of_folders([r.source for r in runs])),
    )
    for how, way in ways:
        labels = way()
        arms = collected(labels) if labels else {}
        if 2 <= len(arms) < len(runs):
            return arms, how
    return {name: [i] for i, name in enumerate(unlike([r.source for r in runs]))}, "each run by itself"


def collected(labels: Sequence[str]) -> Arms:
    out: Arms = {}
    for i, label in enumerate(labels):
        out.setdefault(label, []).append(i)
    return out


def of_setting(runs: Sequence[Columns], name: str) -> list[str] | None:
    found = [run.settings.get(name) for run in runs]
    return [str(x) for x in found] if all(found) else None


def of_settings(runs: Sequence[Columns]) -> list[str] | None:
    """Runs whose recorded settings differ in nothing but seed, names, places and times are one arm."""
    if not all(any("seed" in key for key in run.settings) and len(run.settings) >= 4 for run in runs):
        return None
    kept = [{k: v for k, v in run.settings.items() if not of_one_run(k)} for run in runs]
    differ = sorted({k for row in kept for k in row if len({repr(other.get(k)) for other in kept}) > 1})
    return [", ".join(f"{k}={row.get(k)}" for k in differ) for row in kept] if differ else None


def of_one_run(key: str) -> bool:
    """Whether a setting may differ between the seeds of one arm. What the doctor knows as a setting may not."""
    if concept_of(key) is not None:
        return False
    *above, last = re.split(r"[./]", key.strip().lstrip("-").replace("-", "_").lower())
    if BARE.fullmatch(last):
        return not above or re.fullmatch(OF_RUN, above[-1]) is not None
    return APART.fullmatch(last) is not None


def parts_of(sources: Sequence[str]) -> list[list[str]]:
    """The parts of each path in which the paths differ: common folders before and after are dropped."""
    split = [[p for p in re.split(r"[\\/]|: ", str(Path(s))) if p] for s in sources]
    while all(len(p) > 1 for p in split) and len({p[0] for p in split}) == 1:
        split = [p[1:] for p in split]
    while all(len(p) > 1 for p in split) and len({p[-1] for p in split}) == 1:
        split = [p[:-1] for p in split]
    return [[STAMP.sub("", SUFFIX.sub("", SUFFIX.sub("", part))) for part in p] for p in split]


def of_names(sources: Sequence[str]) -> list[str] | None:
    """The names without what marks a seed in them."""
    parts = parts_of(sources)
    for pattern in SEEDS:
        labels = ["/".join(filter(None, (pattern.sub("", p).strip("-_. ") for p in row))) for row in parts]
        if 2 <= len(set(labels)) < len(labels) and all(labels):
            return labels
    return None


def of_folders(sources: Sequence[str]) -> list[str] | None:
    parts = parts_of(sources)
    return [row[0] for row in parts] if all(len(row) > 1 for row in parts) else None


def unlike(sources: Sequence[str]) -> list[str]:
    """A short name for each run, no two alike."""
    names = ["/".join(filter(None, row)) or source for row, source in zip(parts_of(sources), sources)]
    return names if len(set(names)) == len(names) else [f"{i + 1}: {name}" for i, name in enumerate(names)]


def stated_arms(arms: Sequence[str]) -> list[tuple[str, Any]]:
    """(arm, path) of "--arm A=runs/a*": globs are looked up here, so that they need no shell.

    Raises:
        ConfigError: not NAME=PATH, or a glob that matches nothing.
    """
    out: list[tuple[str, Any]] = []
    for arm in arms:
        name, sign, pattern = arm.partition("=")
        if not sign or not name or not pattern:
            raise ConfigError(
                Text(f"--arm {arm!r} is not NAME=PATH", f"--arm {arm!r} 不是 NAME=PATH 的形式"),
                Text("write it as --arm base='runs/base*'", "请写成 --arm base='runs/base*'"),
            )
        path = Path(pattern)
        found = sorted(path.parent.glob(path.name)) if any(c in path.name for c in "*?[") else [path]
        if any(c in str(path.parent) for c in "*?["):
            found = sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor) if path.anchor else path)))
        if not found:
            raise ConfigError(
                Text(f"--arm {arm}: nothing matches", f"--arm {arm}：没有匹配的内容"),
                Text("look at the path, and quote the glob", "请检查路径，并给通配符加引号"),
            )
        out += [(name, p) for p in found]
    return out
