"""Where a step's rollout comes from: sampled in chunks while rewards of the last chunk are made, or replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from anygrpo.core.rollout import Rollout
from anygrpo.core.task import Made, Pending
from anygrpo.train.distributed import joined_info, rank_seed
from anygrpo.train.parallel import share
from anygrpo.train.stages import PlannedStage

if TYPE_CHECKING:
    from anygrpo.train.run import Run

Clock = Callable[[str], AbstractContextManager[None]]


def gather(run: Run, planned: PlannedStage, step: int) -> Rollout:
    """This step's scored rollout; with `refill`, groups without spread are replaced by fresh ones while tries last."""
    return begin(run, planned, step, run.clock)()


def begin(run: Run, planned: PlannedStage, step: int, clock: Clock) -> Callable[[], Rollout]:
    """Samples a step's rollout; the returned function waits for its rewards. With `refill` nothing is left to wait for:
    what is drawn next depends on the rewards."""
    rounds = rounds_of(planned)
    if rounds == 1:
        return begin_once(run, planned, step - planned.begin, run.seed(step, salt=10), clock, shown=step)
    wanted = len(share(range(planned.stage.algorithm.prompts_per_step)))
    rollout: Rollout | None = None
    fresh: Rollout | None = None
    for attempt in range(rounds):
        index, seed = (step - planned.begin) * rounds + attempt, run.seed(step, salt=10 + attempt)
        fresh = begin_once(run, planned, index, seed, clock, shown=step if attempt == 0 else None)()
        live = fresh.live_groups()
        if rollout is not None:
            live[live.nonzero()[wanted - rollout.shape[0] :, 0]] = False
        kept = fresh.groups(live)
        rollout = kept if rollout is None else rollout.joined(kept)
        if rollout.shape[0] >= wanted:
            break
    assert rollout is not None
    assert fresh is not None
    made = rollout if rollout.shape[0] else fresh
    return lambda: made


def rounds_of(planned: PlannedStage) -> int:
    """Draws of prompts that a step may take: numbers step x rounds, step x rounds + 1, ... of the stage."""
    return 1 + (planned.stage.algorithm.refill if planned.stage.source == "policy" else 0)


def begin_once(
    run: Run, planned: PlannedStage, index: int, seed: int, clock: Clock, shown: int | None = None
) -> Callable[[], Rollout]:
    """This rank's share of prompts number `index` of this stage, sampled (or replayed); the returned function gives it
    scored, with all but the samples on the CPU. `shown`: the step under which samples are written, if at all.

    A rank whose share is empty works on one prompt of another rank's, and keeps none of its groups.
    """
    stage, task = planned.stage, planned.task
    every: list[Any] = task.prompts(index, stage.algorithm.prompts_per_step)
    prompts, seed, version = share(every), rank_seed(seed), run.version
    some = prompts or every[:1]
    if stage.source == "stored":
        chunks = [_replayed(run, planned, some, seed, clock)]
    else:
        chunks = list(_sampled(run, planned, some, seed, clock))
    run.updater.keep_spare(chunks[0].rollout)

    def finish() -> Rollout:
        rollout = _joined(chunks, clock)
        if not prompts:
            return rollout.groups(torch.zeros(1, dtype=torch.bool))
        if stage.source == "stored":
            return rollout
        if shown is not None:
            run.show(shown, prompts, [row for chunk in chunks for row in chunk.outputs], rollout)
        return replace(rollout, version=torch.full_like(rollout.version, version))

    return finish


@dataclass(frozen=True)
class Chunk:
    """Some prompts' outputs, and their scores as they come (None: the rollout has them)."""

    outputs: list[list[Any]]
    rollout: Rollout
    scores: Pending | None


def _replayed(run: Run, planned: PlannedStage, prompts: list[Any], seed: int, clock: Clock) -> Chunk:
    with clock("sample"), torch.no_grad():
        rollout = run.policy.replay(prompts, planned.task.stored(prompts), seed)  # type: ignore[attr-defined]
    return Chunk([], rollout.on_host(), None)


def _sampled(run: Run, planned: PlannedStage, prompts: list[Any], seed: int, clock: Clock) -> Iterator[Chunk]:
    """`sample_chunk` prompts at a time, each with a seed of its own; scoring has begun when the next is sampled."""
    training, policy, task = run.recipe.training, run.policy, planned.task
    size = training.sample_chunk or len(prompts)
    overlaps = training.overlap_rewards and hasattr(task, "score_async")
    for number, first in enumerate(range(0, len(prompts), size)):
        some = prompts[first : first + size]
        with clock("sample"), torch.no_grad():
            rollout = policy.sample(some, planned.stage.algorithm.group_size, _chunk_seed(seed, number))  # type: ignore[attr-defined]
            outputs = policy.decode(rollout.samples)  # type: ignore[attr-defined]
        with clock("score"):
            scores = task.score_async(some, outputs) if overlaps else Made(task.score(some, outputs))  # type: ignore[attr-defined]
        yield Chunk(outputs, rollout.on_host(), scores)


def _chunk_seed(seed: int, number: int) -> int:
    return (seed + number * 32_452_843) % (2**31 - 1)


def _joined(chunks: list[Chunk], clock: Clock) -> Rollout:
    with clock("score"):
        parts = [c.rollout if c.scores is None else c.rollout.scored(c.scores.result()) for c in chunks]
    rollout = parts[0]
    for part in parts[1:]:
        rollout = rollout.joined(part)
    return replace(rollout, info=joined_info(parts, seconds=sum)) if len(parts) > 1 else rollout
