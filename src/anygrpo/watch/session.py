"""A run from its first step to its report, as `anygrpo train` and `anygrpo.train` make it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anygrpo.core.policy import Policy
from anygrpo.core.task import Task
from anygrpo.errors import ConfigError
from anygrpo.recipe.load import parse_recipe
from anygrpo.spoken import Text, say
from anygrpo.train import owners, pictures, snapshot
from anygrpo.train.build import new_run, resumed_run
from anygrpo.train.interrupt import INTERRUPTED
from anygrpo.train.loop import train as take_steps
from anygrpo.train.parallel import is_main
from anygrpo.train.run import Run
from anygrpo.watch.live import attach_doctor, finish
from anygrpo.watch.progress import ProgressLine

TABLES = ("algorithm", "optimizer", "stages", "training", "evaluation", "doctor")


def train(
    policy: Policy,
    task: Task,
    *,
    name: str = "run",
    seed: int = 0,
    folder: str | Path | None = None,
    resume: str | Path | None = None,
    quiet: bool = False,
    **tables: Any,
) -> Run:
    """Train a policy object on a task object; all that a recipe does, with its tables as keyword arguments.

    Args:
        folder: the run's; runs/<name>-<number> where not given.
        resume: a run's folder: go on from its newest complete checkpoint, with the objects given again.
        quiet: no progress line.
        tables: algorithm, optimizer, stages, training, evaluation, doctor, as in a recipe.

    Returns:
        The run, closed: its `policy`, and `folder.path` with metrics, checkpoints and report.html.

    Raises:
        ConfigError: a setting that cannot be meant, or an object that is no Policy or Task.

    >>> run = anygrpo.train(policy, task, training={"steps": 100}, algorithm={"group_size": 8})  # doctest: +SKIP
    """
    if resume is not None:
        if tables or folder:
            raise ConfigError(
                Text("resume goes on with the settings of its own folder", "继续运行使用它自己文件夹中的设置"),
                Text("leave the others out", "请去掉其他设置"),
            )
        run = resumed_run(Path(resume), policy=policy, task=task)
    else:
        if unknown := sorted(set(tables) - set(TABLES)):
            raise ConfigError(
                Text(f"train has no {unknown[0]!r}", f"train 没有 {unknown[0]!r}"),
                Text(f"its tables are {', '.join(TABLES)}", f"可用的表：{', '.join(TABLES)}"),
            )
        table: dict[str, Any] = {"name": name, "seed": seed, **tables}
        table |= {"policy": _object(policy), "task": _object(task)} | (
            {} if folder is None else {"folder": str(folder)}
        )
        run = new_run(parse_recipe(table), policy, task)
    go(run, quiet=quiet)
    return run


def go(run: Run, quiet: bool = False) -> None:
    """Take a run's steps with progress, doctor, pictures and report; under torchrun the first rank shows and writes."""
    if not is_main():
        try:
            with owners.named(run):
                run.evaluate_start()
                take_steps(run)
        finally:
            run.close()
        return
    if not quiet:
        print(say(f"run folder: {run.folder.path}", f"运行文件夹：{run.folder.path}"))
        run.sinks.append(ProgressLine(run.total_steps))
    with snapshot.accounted(run):
        doctor = attach_doctor(run)
        try:
            with owners.named(run):
                run.evaluate_start()
                pictures.remember(run)
                take_steps(run)
            pictures.draw(run)
            if run.stop_reason:
                print(_stopped(run))
        finally:
            run.close()
            finish(run, doctor)
    if not quiet:
        path = run.folder.path
        print(say(f"take it away: anygrpo export {path}", f"带走：anygrpo export {path}"))


def _stopped(run: Run) -> str:
    """Why a run ended before its last step, and how it goes on."""
    reason, config = run.stop_reason or "", run.recipe.evaluation
    if reason == INTERRUPTED:
        on = f"anygrpo train --resume {run.folder.path}"
        return say(f"stopped and saved; to go on: {on}", f"已停止并保存；继续：{on}")
    worse = f"{config.metric} 连续 {config.patience} 次评估没有改善"
    chinese = worse if reason.startswith("no better") else reason.replace("the doctor: ", "诊断器：")
    return say(f"stopped: {reason}", f"已停止：{chinese}")


def _object(made: Any) -> dict[str, str]:
    return {"kind": "object", "name": f"{type(made).__module__}.{type(made).__qualname__}"}
