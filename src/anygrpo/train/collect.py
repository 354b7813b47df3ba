"""Where a step's rollout comes from: sampled in chunks while rewards of the last chunk are made, replayed, or sampled
one step ahead.

Ahead (`training.off_policy_steps = 1`) means drawn by the weights as the step before found them. Sampling comes first
and training second, so that one device gives the same numbers as a sampler that really works beside the updates: with
weights of its own (`Policy.hold_sampler`) it does, in a thread. Rewards that run in workers are made beside the
updates in either case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from anygrpo.core import task_border
from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Rollout
from anygrpo.core.task import Pending, Scores, Task
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text
from anygrpo.train.batches import kept_groups
from anygrpo.train.parallel import gather, most_over_ranks, rank, rank_seed, share, world_size
from anygrpo.train.run import Run
from anygrpo.train.shown import rows_shown
from anygrpo.train.spread import Spread, number_of
from anygrpo.train.stages import PlannedStage, numbers_at

Clock = Callable[[str], AbstractContextManager[None]]


class Collector:
    """Gives each step its rollout. Stages do not reach into one another: a stage's first rollout is its present
    weights' own. `run.ahead` holds the rollout of the step to come between `finish` and `take`; it is part of a
    checkpoint.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._waiting: Callable[[], Rollout] | None = None
        self._version = 0
        self._threads: ThreadPoolExecutor | None = None

    def take(self, planned: PlannedStage, step: int) -> Rollout:
        """This step's scored rollout: the one sampled ahead, or one sampled now."""
        run = self.run
        ahead, run.ahead = run.ahead, None
        rollout = begin(run, planned, step, run.clock)() if ahead is None else ahead
        if not planned.sampled_ahead or not rollout.shape[0]:
            return rollout
        return replace(rollout, info=rollout.info | staleness(rollout, run.version))

    def start(self, planned: PlannedStage, step: int) -> None:
        """Sample the rollout of step + 1, or begin to, where the stage samples ahead."""
        run = self.run
        if not planned.sampled_ahead or step + 1 >= planned.end:
            return
        self._version = run.version
        now, then = run.in_force, run.settings_at(step + 1)
        run.adaptive.ahead = then.get("temperature")
        alone = world_size() == 1 or not planned.refills  # refilling asks the other ranks, which a thread must not
        if now == then and alone and not run.updater.sharded and run.policy.hold_sampler():
            self._threads = self._threads or ThreadPoolExecutor(1, thread_name_prefix="ahead")
            self._waiting = self._threads.submit(_beside, run, planned, step + 1).result
            return
        run.policy.settings(**then)
        self._waiting = begin(run, planned, step + 1, run.clock)
        run.policy.settings(**now)

    def finish(self) -> None:
        """Wait for it. After this the sampler is free: for evaluation, and to take new weights."""
        if self._waiting is None:
            return
        with self.run.clock("wait"):
            rollout, self._waiting = self._waiting(), None
        self.run.policy.release_sampler()
        self.run.ahead = rollout.of_version(self._version)

    def close(self) -> None:
        """End the thread."""
        if self._threads is not None:
            self._threads.shutdown()


def _beside(run: Run, planned: PlannedStage, step: int) -> Rollout:
    device = run.updater.device
    if device.type == "cuda":  # a new thread's current device is the first one
        torch.cuda.set_device(device)
    return begin(run, planned, step, lambda phase: nullcontext())()  # seconds beside the updates are not the step's


def begin(run: Run, planned: PlannedStage, step: int, clock: Clock) -> Callable[[], Rollout]:
    """Samples a step's rollout; the returned function waits for its rewards. With `refill` nothing is left to wait for:
    what is drawn next depends on the rewards."""
    if not planned.refills:
        return begin_once(run, planned, step - planned.begin, run.seed(step, salt=10), clock, shown=step)

    def draw(attempt: int) -> Rollout:
        seed, shown = run.seed(step, salt=10 + attempt), step if attempt == 0 else None
        return begin_once(run, planned, run.draws, seed, clock, shown)()

    made = refilled(run, planned, step, draw)
    return lambda: made


def refilled(run: Run, planned: PlannedStage, step: int, draw: Callable[[int], Rollout]) -> Rollout:
    """As many groups that the stage's filters keep as it asks for, while draws last; what was drawn beside them comes
    along as `discarded`. Prompts follow one another whatever was refilled (`run.draws`): none is passed over."""
    wanted = len(share(range(planned.stage.algorithm.prompts_per_step)))
    kept: Rollout | None = None
    discarded: Rollout | None = None
    fresh: Rollout | None = None
    numbers = numbers_at(planned.stage, step - planned.begin, planned.steps)
    run.first_draws = {s: n for s, n in run.first_draws.items() if s >= step - 1} | {step: run.draws}
    for attempt in range(1 + planned.refills):
        fresh = draw(attempt)
        run.draws += 1
        keep = kept_groups(fresh, planned.stage, numbers)
        if kept is not None:
            keep[keep.nonzero()[wanted - kept.shape[0] :, 0]] = False
        kept = fresh.groups(keep) if kept is None else kept.joined(fresh.groups(keep))
        rest = fresh.groups(~keep).light()
        discarded = rest if discarded is None else discarded.joined(rest)
        if most_over_ranks(wanted - kept.shape[0]) <= 0:  # every rank makes as many draws
            break
    assert kept is not None
    assert discarded is not None
    assert fresh is not None
    if not kept.shape[0]:  # then the last draw is the step; those before it were drawn all the same
        earlier = discarded.shape[0] - fresh.shape[0]
        kept, discarded = fresh, discarded.groups(torch.arange(discarded.shape[0]) < earlier)
    return replace(kept, discarded=discarded)


def begin_once(
    run: Run, planned: PlannedStage, index: int, seed: int, clock: Clock, shown: int | None = None
) -> Callable[[], Rollout]:
    """This rank's share of prompts number `index` of this stage, sampled (or replayed); the returned function gives it
    scored, with all but the samples on the CPU. `shown`: the step under which samples are written, if at all.

    A rank whose share is empty works on one prompt of another rank's, and keeps none of its groups.
    """
    stage, task = planned.stage, planned.task
    count = stage.algorithm.prompts_per_step
    every = task_border.expect_prompts(task, task.prompts(index, count), count, fewer=True)
    prompts, seed, version = share(every), rank_seed(seed), run.version
    some, spread = prompts or [every[0]], None
    a = stage.algorithm
    numbered = a.group_size == "auto" or a.advantage == "history" or run.recipe.training.samples_ahead
    keys = numbers_of(task, every) if numbered else None  # ahead: a resumed run may need them at once
    if stage.source == "stored":
        chunks = [_replayed(run, planned, some, seed, clock)]
    else:
        if keys is not None and a.group_size == "auto":
            sizes = run.adaptive.book.sizes(keys, a)
            spread = Spread(share(sizes) or sizes[:1], a.smallest_group, max(sizes))
        chunks = list(_sampled(run, planned, some, seed, clock, spread))
    if run.updater.sharded:
        run.updater.keep_spare(chunks[0].rollout)

    def finish() -> Rollout:
        rollout = _joined(chunks, clock)
        if not prompts:
            return rollout.groups(torch.zeros(1, dtype=torch.bool))
        if keys is not None:
            rollout = replace(rollout, prompt_id=torch.tensor(share(keys)))
        if stage.source == "stored":
            return rollout
        drawn = rollout.of_version(version)
        if shown is not None:
            outputs = [row for chunk in chunks for row in chunk.outputs]
            run.show(shown, drawn, lambda most: rows_shown(run.policy, prompts[:most], outputs[:most], drawn))
        return _learnt_from(run.policy, run.policy.judged(prompts, drawn))

    return finish


def _learnt_from(policy: Policy, made: Any) -> Rollout:
    """Raises: ConfigError where a policy's `judged` gave no rollout."""
    if isinstance(made, Rollout):
        return made
    name, kind = type(policy).__name__, type(made).__name__
    raise ConfigError(
        Text(f"{name}.judged returned a {kind}, not a Rollout", f"{name}.judged 返回了 {kind}，而不是 Rollout"),
        Text("return the rollout it was given, or a changed one", "请返回所给的 rollout，或改过的 rollout"),
    )


def numbers_of(task: Task, prompts: Sequence[Any]) -> list[int]:
    """What account is kept of each prompt by."""
    return [number_of(task.identity(prompts[i])) for i in range(len(prompts))]


@dataclass(frozen=True)
class Chunk:
    """Some prompts' outputs, and their scores as they come (None: the rollout has them)."""

    outputs: list[list[Any]]
    rollout: Rollout
    scores: Scores | Pending | None
    by: str = "the task"


def _replayed(run: Run, planned: PlannedStage, prompts: list[Any], seed: int, clock: Clock) -> Chunk:
    with clock("sample"), torch.no_grad():
        rollout = run.policy.replay(prompts, planned.task.stored(prompts), seed)
    return Chunk([], rollout.on_host(), None)


def _sampled(
    run: Run, planned: PlannedStage, prompts: list[Any], seed: int, clock: Clock, spread: Spread | None = None
) -> Iterator[Chunk]:
    """`sample_chunk` prompts at a time, each with a seed of its own; scoring has begun when the next is sampled."""
    training, policy, task = run.recipe.training, run.policy, planned.task
    size = training.sample_chunk or len(prompts)
    beside = getattr(task, "score_async", None) if training.overlap_rewards else None
    for number, first in enumerate(range(0, len(prompts), size)):
        some, drawn = prompts[first : first + size], (seed + number * 32_452_843) % (2**31 - 1)
        groups = None if spread is None else spread.part(first, size)
        with clock("sample"), torch.no_grad():
            if groups is None:
                rollout = policy.sample(some, planned.stage.algorithm.typical_group, drawn)
                outputs = policy.decode(rollout.samples)
            else:
                rollout, outputs = groups.sample(policy, some, drawn)
        with clock("score"):
            score = beside or task.score
            scores = score(some, outputs) if groups is None else groups.score(some, outputs, score)
        yield Chunk(outputs, rollout.on_host(), scores, type(task).__name__)


def _joined(chunks: list[Chunk], clock: Clock) -> Rollout:
    with clock("score"):
        made = [c.scores.result() if isinstance(c.scores, Pending) else c.scores for c in chunks]
        parts = [c.rollout if scores is None else c.rollout.scored(scores, c.by) for c, scores in zip(chunks, made)]
    return joined(parts)


def joined(parts: list[Rollout]) -> Rollout:
    """The groups of all parts, and numbers about their sampling."""
    rollout = parts[0]
    for part in parts[1:]:
        rollout = rollout.joined(part)
    return replace(rollout, info=joined_info(parts, seconds=sum)) if len(parts) > 1 else rollout


def staleness(rollout: Rollout, version: int) -> dict[str, float]:
    """Mean age of the decisions: updates made since the weights that drew them."""
    drawn = rollout.version[rollout.mask] if bool(rollout.mask.any()) else rollout.version
    return {"staleness": float((version - drawn).double().mean())}


def whole_of(rollout: Rollout) -> tuple[Rollout, int]:
    """(the step's groups of all ranks in rank order, index of this rank's first one).

    With several ranks the whole has no samples and no log-probs; its tensors are on this rank's device.
    """
    if world_size() == 1:
        return rollout, 0
    parts = gather(rollout.light())
    filled = [p for p in parts if p.shape[0]] or parts[:1]
    whole = filled[0]
    for part in filled[1:]:
        whole = whole.joined(part)
    device = rollout.rewards.device
    moved = {name: getattr(whole, name).to(device) for name in ("log_probs", "mask", "rewards", "valid", "ended")}
    components = {name: x.to(device) for name, x in whole.components.items()}
    whole = replace(whole, **moved, components=components, info=joined_info(parts))
    return whole, sum(p.shape[0] for p in parts[: rank()])


def joined_info(parts: list[Rollout], seconds: Callable[[list[float]], float] = max) -> dict[str, float]:
    """Numbers about the sampling: largest of maxima, smallest of minima, means weighted by samples; of seconds the
    largest, or what `seconds` makes of them."""
    parts = [p for p in parts if p.shape[0]]
    out: dict[str, float] = {}
    for name in dict.fromkeys(name for p in parts for name in p.info):
        values = [(p.info[name], int(p.present.sum())) for p in parts if name in p.info]
        numbers = [v for v, _ in values]
        if name.startswith("time/"):
            out[name] = seconds(numbers)
        elif name.endswith("max"):
            out[name] = max(numbers)
        elif name.endswith("min"):
            out[name] = min(numbers)
        else:
            out[name] = sum(v * n for v, n in values) / sum(n for _, n in values)
    return out
