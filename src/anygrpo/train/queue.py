"""Asynchronous rollouts (`training.max_staleness`): threads sample groups at their own pace while the trainer updates.

Each group is one thread's work, so a slow tool or reward holds up its own group alone. A copy of the policy samples
(`Policy.copied`); after a step's updates it takes over the weights, also of samples under way, and every decision bears
the version that drew it. Groups are trained on in the order they were finished. As many are begun ahead as the bound
lets count; one whose oldest decision is older all the same is dropped and counted. What is sampled when depends on the
clock: such a run does not repeat itself.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

import torch

from anygrpo.core import task_border
from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Rollout
from anygrpo.core.task import Pending, Scores
from anygrpo.core.turnstile import Turnstile
from anygrpo.train.collect import Collector, joined, numbers_of, refilled, staleness
from anygrpo.train.kept_groups import Group, kept, oldest, page, restored
from anygrpo.train.run import Run
from anygrpo.train.stages import PlannedStage

THREADS = 64
"""Groups under way at most, which may all be waiting for their tools or rewards."""

_TRAINER = -1
"""Its number at the turnstile: weights change before anybody samples on."""


@dataclass
class Work:
    """A group under way; `sampled` once only its reward is waited for; `finished`: when its thread was done."""

    place: int
    prompt: Any
    sampled: bool = False
    finished: float = math.inf


@dataclass(frozen=True)
class Drawn:
    """What a thread has made: a group's outputs, and their scores unless the trainer's thread has to make them."""

    rollout: Rollout
    outputs: list[list[Any]]
    scores: Scores | None


class Queue(Collector):
    """Gives each step the groups finished first. `run.queued` is its state as a checkpoint has it."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.bound = run.recipe.training.max_staleness
        self.finished: list[Group] = []
        self._under_way: dict[Future[Drawn], Work] = {}
        self._next, self._dropped, self._found = 0, 0, 0
        self._stage: PlannedStage | None = None
        self._step = 0
        self._batch: tuple[int, Sequence[Any]] = -1, []
        run.queue = self
        said = f"asynchronous rollouts (max_staleness = {self.bound}): this run does not repeat itself exactly"
        run.folder.log(said)
        print(said, file=sys.stderr, flush=True)

    # -- the loop's side ---------------------------------------------------------------------------------------------

    def take(self, planned: PlannedStage, step: int) -> Rollout:
        if not planned.sampled_ahead:
            return super().take(planned, step)
        self._step = step
        if self._stage is not planned:
            self._begin(planned)
        draw = lambda attempt: self._draw(planned, shown=attempt == 0)  # noqa: E731
        rollout = refilled(self.run, planned, step, draw) if planned.refills else draw(0)
        numbers, self._dropped = self._numbers(rollout), 0
        return replace(rollout, info=rollout.info | numbers)

    def start(self, planned: PlannedStage, step: int) -> None:
        """The threads are at work already."""

    def finish(self) -> None:
        """The sampler takes over the weights."""
        if self._stage is not None:
            self._hand_over(min(self._step + 1, self._stage.end - 1))

    def close(self) -> None:
        self.forget()
        super().close()

    def forget(self) -> None:
        """Give up what is under way and what is finished; the next step goes on from `run.queued`."""
        if self._stage is None:
            return
        self._stage = None
        self.turnstile.stop()  # what has not begun ends at its door
        assert self._threads is not None
        self._threads.shutdown()
        self._threads, self._under_way, self.finished = None, {}, []

    def state(self) -> dict[str, Any] | None:
        """What is finished, what was dropped since the last row, which draws were begun and are not finished. Waits for
        groups that only a reward keeps. One that failed counts as begun: it costs no checkpoint, the next step raises,
        and a resumed run draws it again."""
        if self._stage is None:
            return self.run.queued
        wait([future for future, work in self._under_way.items() if work.sampled])
        self._gather(failed_stay=True)
        made = [kept(g, g.shown(self.sampler) if self._paged(i) else None) for i, g in enumerate(self.finished)]
        begun = sorted(work.place for work in self._under_way.values())
        counts = {"stage": self._stage.begin, "next": self._next, "dropped": self._dropped}
        return counts | {"begun": begun, "finished": made}

    # -- groups ------------------------------------------------------------------------------------------------------

    def _draw(self, planned: PlannedStage, shown: bool) -> Rollout:
        """The first `prompts_per_step` finished groups that are not too old."""
        run, count = self.run, planned.stage.algorithm.prompts_per_step
        self._gather()
        if shown:
            self._found = len(self.finished)
        self._fill(planned)
        while len(self.finished) < count:
            with run.clock("wait"):
                wait(self._under_way, return_when=FIRST_COMPLETED)
            self._gather()
            self._fill(planned)
        groups, self.finished = self.finished[:count], self.finished[count:]
        rollout = joined([group.rollout for group in groups])
        if shown:
            run.show(self._step, rollout, lambda most: page(self.sampler, groups, most))
        return rollout

    def _fill(self, planned: PlannedStage) -> None:
        """Begin as many groups as can be trained on within the bound, and within the stage."""
        a = planned.stage.algorithm
        steps = min(1 + self.bound // (a.epochs * a.minibatches), planned.end - self._step)
        while len(self.finished) + len(self._under_way) < steps * a.prompts_per_step:
            self._submit(planned, self._next)
            self._next += 1

    def _submit(self, planned: PlannedStage, place: int) -> None:
        work = Work(place, self._prompt(planned, place))
        assert self._threads is not None
        self._under_way[self._threads.submit(self._work, planned, work)] = work

    def _prompt(self, planned: PlannedStage, place: int) -> Any:
        size = planned.stage.algorithm.prompts_per_step
        if self._batch[0] != place // size:
            given = planned.task.prompts(place // size, size)
            self._batch = place // size, task_border.expect_prompts(planned.task, given, size)
        return self._batch[1][place % size]

    def _gather(self, failed_stay: bool = False) -> None:
        """Take what is done to the finished groups, and drop what is too old by now. What failed raises, or stays under
        way."""
        done = [(work.finished, future) for future, work in self._under_way.items() if future.done()]
        for _, future in sorted(done, key=lambda one: one[0]):
            try:
                self.finished.append(self._scored(future.result(), self._under_way[future]))
            except Exception:
                if not failed_stay:
                    raise
            else:
                del self._under_way[future]
        fresh = [g for g in self.finished if self.run.version - oldest(g.rollout) <= self.bound]
        self._dropped += len(self.finished) - len(fresh)
        self.finished = fresh

    def _scored(self, drawn: Drawn, work: Work) -> Group:
        """Rewards that do not run in workers are made here, in the trainer's thread."""
        assert self._stage is not None
        task, scores = self._stage.task, drawn.scores
        if scores is None:
            with self.run.clock("score"):
                scores = task.score([work.prompt], drawn.outputs)
        rollout = drawn.rollout.scored(scores, type(task).__name__)
        info = {name: value for name, value in rollout.info.items() if not name.startswith("time/")}  # not the step's
        rollout = replace(rollout, info=info, prompt_id=torch.tensor(numbers_of(task, [work.prompt])))
        return Group(
            work.place, work.prompt, rollout, drawn.outputs if self.run.recipe.training.samples_every else None
        )

    def _paged(self, index: int) -> bool:
        """Whether a page is due until the step that takes the finished group number `index`, at the latest."""
        assert self._stage is not None
        every, following = self.run.recipe.training.samples_every, self._step + 1
        latest = following + index // self._stage.stage.algorithm.prompts_per_step
        return bool(every) and latest // every * every >= following

    def _numbers(self, rollout: Rollout) -> dict[str, float]:
        newest = rollout.version.masked_fill(~rollout.mask, -1).amax(-1, keepdim=True)
        mixed = ((rollout.version < newest) & rollout.mask).any(-1)
        return staleness(rollout, self.run.version) | {
            "staleness/max": float(self.run.version - oldest(rollout)),
            "staleness/mixed": float(mixed.double().mean()),
            "queue/finished": float(self._found),
            "queue/under_way": float(len(self._under_way)),
            "queue/dropped": float(self._dropped),
        }

    # -- the sampler's side ------------------------------------------------------------------------------------------

    def _begin(self, planned: PlannedStage) -> None:
        """A stage begins, goes on after a resume, or goes on from an earlier checkpoint."""
        run = self.run
        self.forget()
        held, run.queued = run.queued, None
        draws = run.draws if planned.refills else self._step - planned.begin  # where no queue made those before
        self._next, self._batch = draws * planned.stage.algorithm.prompts_per_step, (-1, [])
        self._dropped = 0
        self.turnstile = Turnstile()
        with torch.no_grad():
            self.sampler: Policy = run.policy.copied(planned.task.prompts(0, 1))
        self.sampler.turnstile = self.turnstile
        self._hand_over(self._step)
        self._threads, self._stage = ThreadPoolExecutor(THREADS, thread_name_prefix="sampler"), planned
        if held is None or held["stage"] != planned.begin:
            return
        self._next, self._dropped = held["next"], held.get("dropped", 0)
        self.finished = [
            restored(one, planned.task, self._prompt(planned, one["place"]), run.updater.device)
            for one in held["finished"]
        ]
        for place in held["begun"]:
            self._submit(planned, place)

    def _hand_over(self, step: int) -> None:
        run = self.run
        with run.clock("hand_over"), self.turnstile.inside(_TRAINER), torch.no_grad():
            self.sampler.follow(run.policy)
            self.sampler.version = run.version
            self.sampler.settings(**run.settings_at(step))

    def _work(self, planned: PlannedStage, work: Work) -> Drawn:
        """In a thread: one group."""
        device = self.run.updater.device
        if device.type == "cuda":  # a new thread's current device is the first one
            torch.cuda.set_device(device)
        task, sampler = planned.task, self.sampler
        seed = self.run.seed(work.place, salt=20 + self.run.entered)
        beside = task.score_async if self.run.recipe.training.overlap_rewards else None
        with self.turnstile.inside(work.place), torch.no_grad():
            version = sampler.version
            rollout = sampler.sample([work.prompt], planned.stage.algorithm.typical_group, seed)
            if sampler.version == version:  # else it was changed on the way, and the policy has taken notes
                rollout = rollout.of_version(version)
            outputs = sampler.decode(rollout.samples)
            rollout = rollout.on_host()
            scores = beside([work.prompt], outputs) if beside else None
        work.sampled = True
        drawn = Drawn(rollout, outputs, scores.result() if isinstance(scores, Pending) else scores)
        work.finished = time.monotonic()
        return drawn
