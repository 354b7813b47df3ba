"""One-step-off sampling: the next step's rollout, drawn by the weights as this step finds them, before its updates.

Sampling comes first and training second, so that one device gives the same numbers as a sampler that really works
beside the updates: with weights of its own (`BasePolicy.hold_sampler`) it does, in a thread. Rewards that run in
workers are made beside the updates in either case.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from anygrpo.core.rollout import Rollout, tree_map
from anygrpo.train.parallel import gather as gather_objects
from anygrpo.train.parallel import share
from anygrpo.train.rollouts import begin, gather
from anygrpo.train.stages import PlannedStage

if TYPE_CHECKING:
    from anygrpo.train.run import Run


class Ahead:
    """The rollout of the step to come, with `training.off_policy_steps = 1`.

    Stages do not reach into one another: a stage's first rollout is its present weights' own.

    Attributes:
        rollout: complete and scored, between `finish` and `take`: part of a checkpoint. None: nothing is ahead.
    """

    def __init__(self) -> None:
        self.rollout: Rollout | None = None
        self._waiting: Callable[[], Rollout] | None = None
        self._version = 0
        self._threads: ThreadPoolExecutor | None = None

    def take(self, run: Run, planned: PlannedStage, step: int) -> Rollout:
        """This step's rollout: the one sampled ahead, or one sampled now."""
        ahead, self.rollout = self.rollout, None
        rollout = gather(run, planned, step) if ahead is None else ahead
        if not _applies(run, planned) or not rollout.shape[0]:
            return rollout
        stale = (run.version - rollout.version).double()
        return replace(rollout, info=rollout.info | {"staleness": float(stale.mean())})

    def start(self, run: Run, planned: PlannedStage, step: int) -> None:
        """Sample the rollout of step + 1, or begin to."""
        if not _applies(run, planned) or step + 1 >= planned.end:
            return
        self._version = run.version
        now, then = run.settings_at(step), run.settings_at(step + 1)
        if now == then and not run.updater.sharded and run.policy.hold_sampler():
            self._threads = self._threads or ThreadPoolExecutor(1, thread_name_prefix="ahead")
            self._waiting = self._threads.submit(_beside, run, planned, step + 1).result
            return
        run.policy.settings(**then)
        self._waiting = begin(run, planned, step + 1, run.clock)
        run.policy.settings(**now)

    def finish(self, run: Run) -> None:
        """Wait for it. After this the sampler is free: for evaluation, and to take new weights."""
        if self._waiting is None:
            return
        with run.clock("wait"):
            rollout, self._waiting = self._waiting(), None
        run.policy.release_sampler()
        self.rollout = replace(rollout, version=torch.full_like(rollout.version, self._version))

    def state(self) -> Rollout | None:
        """The rollout of all ranks, on the CPU, for a checkpoint. Every rank calls this."""
        mine = self.rollout
        if mine is not None:
            mine = replace(mine.on_host(), samples=tree_map(lambda x: x.cpu(), mine.samples))
        parts = [part for part in gather_objects(mine) if part is not None]
        whole = parts[0] if parts else None
        for part in parts[1:]:
            assert whole is not None
            whole = whole.joined(part)
        return whole

    def load(self, whole: Rollout | None) -> None:
        """This rank's share of what `state` gave, on any number of ranks."""
        if whole is None or len(share(range(whole.shape[0]))) == whole.shape[0]:
            self.rollout = whole
            return
        keep = torch.zeros(whole.shape[0], dtype=torch.bool)
        keep[torch.tensor(share(range(whole.shape[0])), dtype=torch.int64)] = True
        self.rollout = whole.groups(keep)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()


def _applies(run: Run, planned: PlannedStage) -> bool:
    return run.recipe.training.off_policy_steps > 0 and planned.stage.source == "policy"


def _beside(run: Run, planned: PlannedStage, step: int) -> Rollout:
    device = run.updater.device
    if device.type == "cuda":  # a new thread's current device is the first one
        torch.cuda.set_device(device)
    return begin(run, planned, step, _untimed)()


def _untimed(phase: str) -> AbstractContextManager[None]:
    """Seconds beside the updates are not part of the step's."""
    return nullcontext()
