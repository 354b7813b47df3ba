"""A run's state: what a checkpoint must hold, and the small acts the loop is made of."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.algorithm import kl
from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Batch, Rollout
from anygrpo.core.task import Task
from anygrpo.recipe.recipe import Recipe, number
from anygrpo.train import measure
from anygrpo.train.adaptive import Adaptive
from anygrpo.train.batches import Prepared
from anygrpo.train.evaluation import HELD_OUT, check_metric, evaluate, step_seed
from anygrpo.train.folder import RunFolder
from anygrpo.train.parallel import is_main, max_over_ranks, rank_seed
from anygrpo.train.sharded import full_state, whole_weights
from anygrpo.train.stages import Controls, Numbers, PlannedStage, controlled, kl_controller, numbers_at, policy_settings
from anygrpo.train.terms import Tally
from anygrpo.train.trackers import Sink
from anygrpo.train.unusable import Unusable
from anygrpo.train.update import Updater, given_up
from anygrpo.train.waiting import Waiting

_REFUSALS_IN_A_ROW = 20
MOST_FAULTS = 0.01
"""Share of held-out answers that may go unscored through no fault of theirs in a comparison."""


class Run:
    """All state of a run. The loop (`anygrpo.train.loop`) drives it.

    Args:
        recipe: validated.
        policy, stages: built from it.
        folder: the run's own.
        sinks: where rows go, besides metrics.jsonl.

    Attributes:
        observers: called with (row, run) after each step; the doctor and the progress line are such observers.
        draws: draws of prompts that the present stage has made, where it refills.
        first_draws: step -> number of its first draw, of the present and the next step.
        adaptive: the temperature under control, and what is known of each prompt.
        in_force: settings of the policy at the present step.
        ahead: with `training.off_policy_steps` the rollout of the step to come, complete and scored; None: nothing is.
        queue: with `training.max_staleness` what samples beside the updates; None: nothing does.
        queued: the state that such a queue begins from, of a checkpoint.
        back_to: the checkpoint to go on from once this step is over.
        watched: plain data that who watches the run needs after a resume; saved with it, not undone by going back.
        measures_updates: whether the size of each update is measured, which takes a copy of the trained weights.
        teaches: demonstrations are learnt beside the present stage's samples.
    """

    def __init__(
        self, recipe: Recipe, policy: Policy, stages: list[PlannedStage], folder: RunFolder, sinks: list[Sink]
    ) -> None:
        self.recipe, self.policy, self.stages, self.folder, self.sinks = recipe, policy, stages, folder, sinks
        self.observers: list[Callable[[dict[str, Any], Run], None]] = []
        self.controls = Controls()
        self.step = 0
        self.total_steps = stages[-1].end if stages else 0
        self.samples_seen, self.version = 0, 0
        self.memory: Any = None
        self.memory_before: Any = None  # the same before the present step
        self.best, self.best_step, self.evaluations_since_best = -math.inf, -1, 0
        self.anchor: dict[str, Tensor] | None = None
        self.ahead: Rollout | None = None
        self.queue: Waiting | None = None
        self.queued: dict[str, Any] | None = None
        self.adaptive = Adaptive(policy, stages)
        self.in_force: dict[str, float] = {}
        self.draws = 0
        self.first_draws: dict[int, int] = {}
        self.stop_reason: str | None = None
        self.back_to: Path | None = None
        self.watched: dict[str, Any] = {}
        self.measures_updates = recipe.training.gradient_norms_every > 0
        self.entered, self.teaches, self._settled = -1, False, False
        self._refused_in_a_row, self._unusable = 0, Unusable()
        self._seconds: dict[str, float] = {}

    def enter(self, step: int) -> tuple[PlannedStage, Numbers]:
        """The stage at `step`, prepared, and its scheduled numbers under the doctor's controls.

        Random state is set from (seed, step) alone, so a resumed step repeats exactly.
        """
        torch.manual_seed(rank_seed(self.seed(step)))
        self._seconds = {}
        self.memory_before = self.memory
        index = self.stage_index(step)
        planned = self.stages[index]
        if index != self.entered:
            self.begin_stage(index, fresh=step == planned.begin)
        numbers = numbers_at(planned.stage, step - planned.begin, planned.steps)
        if planned.stage.algorithm.kl_controller != "fixed":
            numbers = replace(numbers, beta=self.kl_state.beta)
        self.in_force = self.settings_at(step)
        if self.ahead is not None and self.adaptive.ahead is not None:
            self.in_force |= {"temperature": self.adaptive.ahead}  # that of its samples, which are scored now
        self.policy.settings(**self.in_force)
        return planned, controlled(numbers, self.controls, self.policy.clip)

    def settings_at(self, step: int) -> dict[str, float]:
        """The policy's scheduled settings at `step`, and what a controller makes of its temperature by now."""
        planned = self.stages[self.stage_index(step)]
        settings = policy_settings(self.recipe.policy, step, self.total_steps)
        temperature = numbers_at(planned.stage, step - planned.begin, planned.steps).temperature
        return self.adaptive.with_temperature(settings, planned.stage, temperature)

    def begin_stage(self, index: int, fresh: bool) -> None:
        stage = self.stages[index].stage
        self.updater = Updater(self.policy, stage.optimizer)
        self.kl_state = kl_controller(stage, numbers_at(stage, 0, self.stages[index].steps).beta)
        a = stage.algorithm
        self.adaptive.begin(stage, fresh)
        self._unusable.begin(fresh)
        self.policy.corrects = stage.method == "grpo" and a.importance != "none"
        on_policy = stage.source == "policy" and not self.recipe.training.samples_ahead and not self.policy.corrects
        self.policy.one_update = on_policy and a.epochs * a.minibatches == 1
        if fresh and index > 0:
            self.policy.new_stage()
            self.anchor = self.policy.fix_reference(full_state(self.policy.trainable()))
            self.memory = None
            self.draws, self.first_draws = 0, {}
        beside = stage.method != "supervised" and not self.policy.targets_in_samples
        self.teaches = beside and bool(number(a.lambda_supervised))
        self.entered = index

    def seed(self, step: int, salt: int = 0) -> int:
        """A seed for one purpose (salt) in one step."""
        return step_seed(self.recipe.seed, step, salt)

    @property
    def block_rows(self) -> int:
        """Rows in one forward and backward pass at most."""
        return self.recipe.training.rows_per_block or self.policy.block_rows

    def settle(self, batch: Batch) -> None:
        """Before the first update: the policy chooses what is for speed alone, and the run's folder keeps it."""
        if self._settled or not len(batch):
            return
        self._settled = True
        with self.clock("settle"):
            said = self.policy.settle(batch.samples, self.updater.to_come(self.measures_updates))
        if is_main() and self.policy.speed:
            self.folder.keep_speed(self.policy.speed)
        if is_main() and said:
            self.folder.log(said)
            print(said, file=sys.stderr, flush=True)

    @contextmanager
    def clock(self, phase: str) -> Iterator[None]:
        """Adds to "time/<phase>" of the current step."""
        start = time.perf_counter()
        yield
        self._seconds[phase] = self._seconds.get(phase, 0.0) + time.perf_counter() - start

    def whole_weights(self) -> AbstractContextManager[None]:
        """Inside, passes without gradient need no other rank."""
        return whole_weights(self.policy)

    def measuring(self, step: int) -> bool:
        """Whether each term's own gradient norm is measured at this step."""
        every = self.recipe.training.gradient_norms_every
        return every > 0 and step % every == 0

    def apply(self, row: dict[str, float]) -> None:
        """Count an update; too many refusals in a row end the run."""
        refused = not math.isfinite(row["grad_norm/total"])
        self._refused_in_a_row = self._refused_in_a_row + 1 if refused else 0
        self.version += not refused
        self.policy.version = self.version
        if self._refused_in_a_row >= _REFUSALS_IN_A_ROW:
            raise given_up(self._refused_in_a_row)

    def record(
        self,
        step: int,
        planned: PlannedStage,
        numbers: Numbers,
        prepared: Prepared,
        rollout: Rollout,
        tally: Tally,
        update: dict[str, float],
    ) -> None:
        """One flat row of numbers to metrics.jsonl, sinks and observers; evaluation where it is due."""
        row: dict[str, Any] = {
            "step": step,
            "stage": planned.stage.name,
            "lr": numbers.learning_rate,
            "beta": numbers.beta,
        }
        every = rollout if rollout.discarded is None else rollout.light().joined(rollout.discarded)
        self.samples_seen += int(every.present.sum())
        row |= measure.step_metrics(planned.stage, numbers, prepared, every, update | measure.update_metrics(tally))
        row["steps_refused"] = float(self.updater.refused)
        row |= self.updater.scale.told()
        row["samples/seen"] = float(self.samples_seen)
        if "kl/reference" in row:
            self.kl_state = kl.update(self.kl_state, row["kl/reference"], samples=int(rollout.present.sum()))
        if "temperature" in self.in_force:
            row["temperature"] = self.in_force["temperature"]
        self.adaptive.follow(planned.stage, every, row)
        if planned.evaluation_due(step, self.recipe.evaluation) or step + 1 == self.total_steps:
            row |= self.evaluated(planned.task, step)
        row |= {f"time/{phase}": s for phase, s in self._seconds.items()}
        row["time/step"] = sum(self._seconds.values())
        row["throughput/decisions_per_s"] = float(rollout.mask.sum()) / max(row["time/step"], 1e-9)
        row["memory/peak_gb"] = float(max_over_ranks(torch.tensor(measure.memory_gb(self.updater.device))))
        self.emit(row)
        self._unusable.see(every, planned.stage.source != "policy" or self.teaches)

    def evaluated(self, task: Task, step: int) -> dict[str, float]:
        """Held-out numbers; notes whether they are the best so far, and stops the run when patience is over."""
        with self.clock("evaluate"), whole_weights(self.policy):
            row = evaluate(
                self.policy, task, self.recipe.evaluation, self.seed(step, salt=HELD_OUT), self._results(step + 1)
            )
        settings = self.recipe.evaluation
        if not row.get("eval/decides", 1.0):  # the task says so: too little of it is judged
            return row
        if (value := row.get(settings.metric)) is None:
            if task is self.stages[-1].task:  # earlier stages may have tasks that do not measure it
                check_metric(row, settings)
            return row
        if "eval/decides" not in row and row.get("eval/faults", 0.0) > MOST_FAULTS:
            share = f"{row['eval/faults']:.1%} of the held-out answers"
            self.folder.log(f"step {step}: {share} went unscored; none is called best")
            return row
        value = -value if settings.smaller_is_better else value
        if value > self.best:
            self.best, self.best_step, self.evaluations_since_best = value, step, 0
        else:
            self.evaluations_since_best += 1
            if settings.patience and self.evaluations_since_best >= settings.patience:
                self.stop(f"no better {settings.metric} in {settings.patience} evaluations")
        return row

    def show(self, step: int, rollout: Rollout, rows: Callable[[int], list[dict[str, Any]]]) -> None:
        """samples/step_*.jsonl on the recipe's rhythm (`rows`: of so many prompts), and invalid samples' reasons."""
        config = self.recipe.training
        if config.samples_every and step % config.samples_every == 0:
            self.folder.write_samples(step, rows(config.samples_kept))
        if rollout.reasons:
            self.folder.log_invalid(step, rollout.reasons)

    def evaluate_start(self) -> None:
        """The held-out numbers before the first step, as row -1."""
        if self.step == 0 and self.recipe.evaluation.at_start and self.stages:
            self._seconds = {}
            task, config = self.stages[-1].task, self.recipe.evaluation
            with whole_weights(self.policy):
                row = evaluate(self.policy, task, config, self.seed(0, salt=HELD_OUT), self._results(0))
            check_metric(row, config)
            if row:
                self.emit({"step": -1, "stage": "start", **row})

    def _results(self, step: int) -> Path:
        """Where each held-out prompt's result goes, of the weights after `step` steps."""
        return self.folder.path / "evaluations" / f"step_{step:08d}.jsonl"

    def emit(self, row: dict[str, Any]) -> None:
        for sink in self.sinks:
            sink.write(row)
        for observer in self.observers:
            observer(row, self)

    def stop(self, reason: str) -> None:
        """End after this step."""
        self.stop_reason = reason
        self.folder.log(f"stopping: {reason}")

    def roll_back_to(self, path: Path) -> None:
        """Once this step is over, go on from a checkpoint of this run, under the controls in force then.

        Raises:
            DataError: (when the step is over) the checkpoint is damaged or absent.
        """
        self.back_to = path

    def stage_index(self, step: int) -> int:
        return next(i for i, planned in enumerate(self.stages) if planned.begin <= step < planned.end)

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()
        for planned in self.stages:
            planned.task.close()
        self.folder.close()
