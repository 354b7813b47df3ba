"""What a whole run will take, from a trial of a few of its steps: hours, peak memory, disk.

It holds while steps stay what they are: samples that grow or shrink as the policy learns, and groups that lose their
spread, change what a step costs. A run that is stopped early (patience, the doctor) takes less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from anygrpo.recipe.recipe import Recipe
from anygrpo.spoken import say
from anygrpo.watch.trial import StageTrial, Trial


@dataclass(frozen=True)
class Forecast:
    """Of a whole run in one process.

    Attributes:
        seconds: wall-clock, from the command to its end.
        memory_gb: peak: of the device where there is one, else resident.
        disk_bytes: of the run folder at its end.
        parts: what the seconds are made of.
    """

    seconds: float
    memory_gb: float
    disk_bytes: float
    parts: dict[str, float]


def forecast(trial: Trial, recipe: Recipe) -> Forecast:
    """The trial's measures times how often each comes in a run."""
    training, steps = recipe.training, sum(stage.steps for stage in trial.stages)
    each = sum(trial.evaluations) / max(len(trial.evaluations), 1)
    evaluations = sum(stage.evaluations for stage in trial.stages)
    between = max(math.ceil(steps / training.checkpoint_every) - 1, 0)  # the last one is in `end`
    bests = evaluations / 2  # how many are a new best is not known before the run
    parts = {
        "start": trial.start,
        "steps": sum(map(seconds_of, trial.stages)),
        "evaluations": evaluations * each,
        "checkpoints": (between + bests) * trial.checkpoint,
        "end": trial.end,
    }
    kept = min(training.keep_checkpoints, between + 1) + bool(evaluations and trial.evaluations)
    starts = bool(trial.evaluations and recipe.evaluation.at_start)
    disk = (
        kept * trial.checkpoint_bytes
        + (steps + starts) * trial.row_bytes
        + sum(stage.shown for stage in trial.stages) * trial.samples_bytes
        + (evaluations + starts) * trial.evaluation_bytes
        + trial.other_bytes
    )
    memory = trial.memory_gb if trial.device_gb is None else trial.device_gb
    return Forecast(sum(parts.values()), memory, disk, parts)


def seconds_of(stage: StageTrial) -> float:
    """All steps of a stage. Its first step stands for itself: it is cold, and may choose what is for speed alone.
    Steps that measure gradient norms cost more; where only the first one was measured, it stands for them."""
    if not stage.seconds:
        return 0.0
    first, later = stage.seconds[0], list(zip(stage.seconds, stage.measured))[1:]
    plain = [s for s, measured in later if not measured] or [s for s, _ in later] or [first]
    usual = sum(plain) / len(plain)
    measuring = [s for s, measured in later if measured] or [max(first, usual)]
    more = max(stage.measuring - stage.measured[0], 0)
    return first + more * sum(measuring) / len(measuring) + max(stage.steps - 1 - more, 0) * usual


def lines(made: Forecast, trial: Trial) -> list[str]:
    """The forecast as a person reads it."""
    hours, took = made.seconds / 3600, sum(sum(stage.seconds) for stage in trial.stages)
    taken, steps = sum(len(s.seconds) for s in trial.stages), sum(s.steps for s in trial.stages)
    head = say(
        f"forecast: {hours:.3g} hours ({_minutes(made.seconds)}), {_size(made.memory_gb * 2**30)} of memory at the "
        f"peak, {_size(made.disk_bytes)} of disk",
        f"预测：{hours:.3g} 小时（{_minutes(made.seconds)}），内存峰值 {_size(made.memory_gb * 2**30)}，"
        f"磁盘 {_size(made.disk_bytes)}",
    )
    p = made.parts
    why = say(
        f"start {p['start']:.0f} s, {steps} steps {p['steps']:.0f} s, evaluations {p['evaluations']:.0f} s, "
        f"checkpoints {p['checkpoints']:.0f} s, end {p['end']:.0f} s; from {taken} steps that took {took:.0f} s",
        f"启动 {p['start']:.0f} 秒，{steps} 步 {p['steps']:.0f} 秒，评估 {p['evaluations']:.0f} 秒，"
        f"检查点 {p['checkpoints']:.0f} 秒，收尾 {p['end']:.0f} 秒；由实际运行的 {taken} 步（{took:.0f} 秒）推算",
    )
    if trial.device_gb is not None:
        resident = _size(trial.memory_gb * 2**30)
        why += say(f"; {resident} of it resident on the host", f"；主机内存 {resident}")
    return [head, why]


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return say(f"{minutes} min {rest} s", f"{minutes} 分 {rest} 秒")


def _size(count: float) -> str:
    for unit, size in (("GB", 2**30), ("MB", 2**20)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count / 2**10:.3g} KB"
