"""What a whole run will take, from a trial of a few of its steps: hours, peak memory, disk.

It holds while steps stay what they are: samples that grow or shrink as the policy learns, and groups that lose their
spread, change what a step costs. A run that is stopped early (patience, the doctor) takes less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from anygrpo.recipe.recipe import Recipe
from anygrpo.spoken import say
from anygrpo.watch.cost import Cost, mean, total
from anygrpo.watch.trial import StageTrial, Trial

BUSY = 0.1
"""Share of a trial's time spent waiting for a processor beyond which the forecast says what other work costs."""


@dataclass(frozen=True)
class Forecast:
    """Of a whole run in one process.

    Attributes:
        cost: from the command to its end: by the clock, of the processor, of waiting for one.
        memory_gb: peak: of the device where there is one, else resident.
        disk_bytes: of the run folder at its end.
        parts: what the cost is made of.
    """

    cost: Cost
    memory_gb: float
    disk_bytes: float
    parts: dict[str, Cost]


def forecast(trial: Trial, recipe: Recipe) -> Forecast:
    """The trial's measures times how often each comes in a run."""
    training, steps = recipe.training, sum(stage.steps for stage in trial.stages)
    evaluations = sum(stage.evaluations for stage in trial.stages)
    between = max(math.ceil(steps / training.checkpoint_every) - 1, 0)  # the last one is in `end`
    bests = evaluations / 2  # how many are a new best is not known before the run
    parts = {
        "start": trial.start,
        "steps": total(map(cost_of, trial.stages)),
        "evaluations": mean(trial.evaluations) * evaluations,
        "checkpoints": trial.checkpoint * (between + bests),
        "end": trial.end,
    }
    before_end = between + (evaluations > 1)  # a new best is saved under its step too; the last one ends the run
    kept = min(training.keep_checkpoints, before_end + 1) + bool(evaluations and trial.evaluations)
    starts = bool(trial.evaluations and recipe.evaluation.at_start)
    disk = (
        kept * trial.checkpoint_bytes
        + (steps + starts) * trial.row_bytes
        + sum(stage.shown for stage in trial.stages) * trial.samples_bytes
        + (evaluations + starts) * trial.evaluation_bytes
        + trial.other_bytes
    )
    memory = trial.memory_gb if trial.device_gb is None else trial.device_gb
    return Forecast(total(parts.values()), memory, disk, parts)


def cost_of(stage: StageTrial) -> Cost:
    """All steps of a stage. Its first step stands for itself: it is cold, and may choose what is for speed alone.
    Steps that measure gradient norms cost more; where only the first one was measured, it stands for them."""
    if not stage.costs:
        return Cost()
    first, later = stage.costs[0], list(zip(stage.costs, stage.measured))[1:]
    usual = mean([c for c, measured in later if not measured] or [c for c, _ in later] or [first])
    dearer = first if first.clock > usual.clock else usual
    measuring = mean([c for c, measured in later if measured] or [dearer])
    more = max(stage.measuring - stage.measured[0], 0)
    return first + measuring * more + usual * max(stage.steps - 1 - more, 0)


def lines(made: Forecast, trial: Trial) -> list[str]:
    """The forecast as a person reads it."""
    cost, took = made.cost, total(c for stage in trial.stages for c in stage.costs)
    taken, steps = sum(len(s.costs) for s in trial.stages), sum(s.steps for s in trial.stages)
    head = say(
        f"forecast: {_time(cost.alone)}, {_size(made.memory_gb * 2**30)} of memory at the peak, "
        f"{_size(made.disk_bytes)} of disk",
        f"预测：{_time(cost.alone)}，内存峰值 {_size(made.memory_gb * 2**30)}，磁盘 {_size(made.disk_bytes)}",
    )
    p = {name: part.alone for name, part in made.parts.items()}
    why = say(
        f"start {p['start']:.0f} s, {steps} steps {p['steps']:.0f} s, evaluations {p['evaluations']:.0f} s, "
        f"checkpoints {p['checkpoints']:.0f} s, end {p['end']:.0f} s; from {taken} steps that took {took.alone:.0f} s; "
        f"{_time(cost.processor)} of processor time",
        f"启动 {p['start']:.0f} 秒，{steps} 步 {p['steps']:.0f} 秒，评估 {p['evaluations']:.0f} 秒，"
        f"检查点 {p['checkpoints']:.0f} 秒，收尾 {p['end']:.0f} 秒；"
        f"由实际运行的 {taken} 步（{took.alone:.0f} 秒）推算；"
        f"处理器时间 {_time(cost.processor)}",
    )
    if trial.device_gb is not None:
        resident = _size(trial.memory_gb * 2**30)
        why += say(f"; {resident} of it resident on the host", f"；主机内存 {resident}")
    return [head, why, *_busy(cost)]


def _busy(cost: Cost) -> list[str]:
    """Where other work had the processor for much of the trial: what the run takes beside it."""
    if cost.waited <= BUSY * cost.clock:
        return []
    return [
        say(
            f"this machine is busy: beside its other work as it is now, {_time(cost.clock)}",
            f"这台机器正忙：若一直像现在这样与其他工作并行，需 {_time(cost.clock)}",
        )
    ]


def _time(seconds: float) -> str:
    """As a person says it: hours from two on, else minutes and seconds."""
    if seconds >= 7200:
        return say(f"{seconds / 3600:.3g} hours", f"{seconds / 3600:.3g} 小时")
    minutes, rest = divmod(round(seconds), 60)
    return say(
        f"{minutes} min {rest} s" if minutes else f"{rest} s", f"{minutes} 分 {rest} 秒" if minutes else f"{rest} 秒"
    )


def _size(count: float) -> str:
    for unit, size in (("GB", 2**30), ("MB", 2**20)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count / 2**10:.3g} KB"
