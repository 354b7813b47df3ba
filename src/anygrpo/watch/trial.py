"""A few real steps of a recipe in a folder that is thrown away, measured: what a forecast is made of.

`measured` starts a process of its own (`python -m anygrpo.watch.trial`), so that start, memory and what the run
leaves behind are those of a run and of nothing else. Each stage takes its first steps and its last one, under the
schedules of the whole run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from anygrpo.errors import AnygrpoError, ConfigError, DataError, TrainingError
from anygrpo.recipe.load import dump_recipe, load_recipe
from anygrpo.recipe.recipe import Recipe
from anygrpo.scratch import Scratch
from anygrpo.spoken import say
from anygrpo.watch.cost import Cost, now, total

LEAST_SECONDS = 10.0
"""Short steps are repeated for this long in each stage: three of them would measure nothing but noise."""

RANKS = frozenset({"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
"""Variables of torchrun, which the one process of a trial must not see: a dry run for eight ranks sets WORLD_SIZE."""


@dataclass
class StageTrial:
    """What a stage would be, and what its few steps took.

    Attributes:
        steps: of the whole run.
        evaluations, measuring, shown: how many of those evaluate, measure gradient norms, and write samples.
        costs: of each step that was taken, without evaluation.
        measured: whether each of those measured gradient norms.
    """

    steps: int
    evaluations: int
    measuring: int
    shown: int
    costs: list[Cost] = field(default_factory=list[Cost])
    measured: list[bool] = field(default_factory=list[bool])


@dataclass
class Trial:
    """What was measured. Sizes are bytes.

    Attributes:
        start: from the process's start to the first step, evaluation at the start included.
        evaluations: each later evaluation.
        checkpoint: of writing one.
        end: after the last step: its checkpoint, pictures, report.
        memory_gb: peak of this process, resident; of the device where there is one.
        checkpoint_bytes, row_bytes, samples_bytes, evaluation_bytes: of one of each.
        other_bytes: all else in the folder.
    """

    stages: list[StageTrial]
    start: Cost
    evaluations: list[Cost]
    checkpoint: Cost
    end: Cost
    memory_gb: float
    device_gb: float | None
    checkpoint_bytes: int
    row_bytes: float
    samples_bytes: float
    evaluation_bytes: float
    other_bytes: int


def measured(recipe: Recipe, steps: int) -> Trial:
    """Take at least `steps` steps (2 at least) of each stage, and remove what they leave behind.

    Raises:
        AnygrpoError: the run cannot start, or fails in its first steps: its own error.
    """
    with Scratch("trial") as here:
        table = recipe.model_copy(update={"folder": str(here / "run")})
        (here / "recipe.toml").write_text(dump_recipe(table), encoding="utf-8")
        words = [sys.executable, "-m", "anygrpo.watch.trial", str(here), str(steps), repr(time.time())]
        alone = {key: value for key, value in os.environ.items() if key not in RANKS}
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=alone)
        made = here / "trial.json"
        if done.returncode or not made.is_file():
            raise _failed(here / "error.json", done)
        table = json.loads(made.read_text(encoding="utf-8"))
    stages = [StageTrial(**s | {"costs": [Cost(**c) for c in s["costs"]]}) for s in table["stages"]]
    costs = {name: Cost(**table[name]) for name in ("start", "checkpoint", "end")}
    return Trial(**table | costs | {"stages": stages, "evaluations": [Cost(**c) for c in table["evaluations"]]})


def _failed(file: Path, done: subprocess.CompletedProcess[str]) -> AnygrpoError:
    """The error that the run itself would end with; of a process that died without one, its last words."""
    if file.is_file():
        said = json.loads(file.read_text(encoding="utf-8"))
        kind = next((k for k in (ConfigError, DataError, TrainingError) if k.exit_code == said["code"]), TrainingError)
        return kind(said["what"], said["cure"])
    words = [line for line in done.stderr.splitlines() if line.strip()]
    why = words[-1] if words else f"exit code {done.returncode}"
    return TrainingError(
        say(f"the trial of a few steps failed: {why}", f"试跑几步失败：{why}"),
        say("`anygrpo train` shows all of it; --trial 0: no trial", "`anygrpo train` 会显示全部；--trial 0：不试跑"),
    )


class _Taker:
    """An observer and a sink of a run: notes when each step ended, and leaps from a stage's first steps to its last."""

    def __init__(self, run: Any, steps: int) -> None:
        self.run, self.least = run, steps
        self.last = now()
        self.start = self.checkpoint = Cost()
        self.evaluations: list[Cost] = []
        self.new_best = False
        self.stages = [_planned(run, planned) for planned in run.stages]

    def __call__(self, row: dict[str, Any], run: Any) -> None:
        here, step = now(), row["step"]
        if step < 0:  # the evaluation at the start: the next row's time begins here
            self.last = here
            return
        index = run.stage_index(step)
        planned, stage = run.stages[index], self.stages[index]
        first = not any(s.costs for s in self.stages)
        whole = (here - self.last).part(row["time/step"]) if first else here - self.last
        if first:
            self.start = here - whole
        evaluated = whole.part(row.get("time/evaluate", 0.0))
        saved = self.checkpoint if self.new_best else Cost()  # of the step before, after its row
        self.new_best = run.best_step == step
        stage.costs.append(whole - evaluated - saved)
        stage.measured.append(run.measuring(step))
        self.evaluations += [evaluated] if evaluated.clock else []
        enough = len(stage.costs) >= self.least - 1 and total(stage.costs).clock >= LEAST_SECONDS
        if enough and step < planned.end - 2:
            run.step, run.ahead = planned.end - 2, None  # the loop adds one
        if not self.checkpoint.clock:
            self.checkpoint = _cost_of_a_checkpoint(run)
        self.last = now()

    def write(self, row: dict[str, Any]) -> None:
        """A sink must take rows."""

    def close(self) -> None:
        """And be closed."""


def _planned(run: Any, planned: Any) -> StageTrial:
    every, training = run.recipe.evaluation, run.recipe.training
    steps = range(planned.begin, planned.end)
    samples = training.samples_every if planned.stage.source == "policy" else 0
    return StageTrial(
        steps=planned.steps,
        evaluations=sum(planned.evaluation_due(s, every) or s + 1 == run.total_steps for s in steps),
        measuring=sum(map(run.measuring, steps)),
        shown=sum(s % samples == 0 for s in steps) if samples else 0,
    )


def _cost_of_a_checkpoint(run: Any) -> Cost:
    from anygrpo.train import snapshot

    began = now()
    snapshot.save(run)
    return now() - began


def _bytes(files: Iterator[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())


def _take(folder: Path, steps: int, launched: float) -> Trial:
    """In the process of its own: run, and measure what is left."""
    from anygrpo.train import checkpoint, measure
    from anygrpo.train.build import new_run
    from anygrpo.watch.session import go

    recipe = load_recipe(folder / "recipe.toml")
    # A tracker shows runs, not trials; the cost of a checkpoint is measured by itself.
    alone: dict[str, Any] = {"training": recipe.training.model_copy(update={"sinks": (), "checkpoint_every": 10**9})}
    if recipe.doctor.mode == "act":
        alone["doctor"] = recipe.doctor.model_copy(update={"mode": "watch"})  # it would steer what is measured
    run = new_run(recipe.model_copy(update=alone))
    taker = _Taker(run, max(steps, 2))
    run.observers.append(taker)
    go(run, quiet=True)
    end = now() - taker.last
    path = run.folder.path
    held = checkpoint.complete(run.folder.checkpoints)
    one = {name: sorted((path / name).rglob("*.jsonl")) for name in ("samples", "evaluations")}
    rows = (path / "metrics.jsonl").read_bytes().splitlines(keepends=True) if run.folder.metrics.is_file() else []
    known = _bytes((path / "checkpoints").rglob("*")) + sum(map(len, rows)) + sum(_bytes(iter(x)) for x in one.values())
    each = {name: _bytes(iter(files)) / max(len(files), 1) for name, files in one.items()}
    return Trial(
        stages=taker.stages,
        start=(taker.start if taker.start.clock else now()) - Cost(clock=launched),
        evaluations=taker.evaluations,
        checkpoint=taker.checkpoint,
        end=end,
        memory_gb=measure.resident_gb(),
        device_gb=measure.memory_gb(run.updater.device) if run.updater.device.type == "cuda" else None,
        checkpoint_bytes=_bytes(held[-1].rglob("*")) if held else 0,
        row_bytes=sum(map(len, rows)) / max(len(rows), 1),
        samples_bytes=each["samples"],
        evaluation_bytes=each["evaluations"],
        other_bytes=_bytes(path.rglob("*")) - known,
    )


def main(arguments: list[str]) -> int:
    """`python -m anygrpo.watch.trial FOLDER STEPS LAUNCHED`: FOLDER/recipe.toml -> FOLDER/trial.json."""
    folder, steps, launched = Path(arguments[0]), int(arguments[1]), float(arguments[2])
    try:
        trial = _take(folder, steps, launched)
    except AnygrpoError as error:
        said = {"what": error.what, "cure": error.cure, "code": error.exit_code}
        (folder / "error.json").write_text(json.dumps(said), encoding="utf-8")
        return error.exit_code
    (folder / "trial.json").write_text(json.dumps(asdict(trial)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    raise SystemExit(main(sys.argv[1:]))
