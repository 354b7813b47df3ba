"""The loop. One screen: every kind of policy, every stage, every objective runs through these lines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from anygrpo.rollout import Rollout
from anygrpo.train.batches import minibatches, needed_rows, own_part, prepare, weigh, with_reference
from anygrpo.train.distributed import rank_seed, whole_of
from anygrpo.train.distributed_sharded import whole_weights
from anygrpo.train.objective import Tally
from anygrpo.train.parallel import share, total_over_ranks
from anygrpo.train.run import Run
from anygrpo.train.schedule import Numbers
from anygrpo.train.stages import PlannedStage


def train(run: Run) -> None:
    """Take the run's remaining steps. All that lasts is in `run`; all that is random follows from (seed, step)."""
    rows = run.recipe.training.rows_per_block
    for step in run.remaining_steps():
        planned, numbers = run.enter(step)
        stage, measuring = planned.stage, run.measuring(step)
        with whole_weights(run.policy):
            rollout = gather(run, planned, step)
        whole, first = whole_of(rollout)
        prepared = prepare(whole, stage, numbers, run.running)
        run.running = prepared.running
        tally, update = Tally(), {}
        with run.clock("update"):
            for part in minibatches(own_part(prepared, rollout, first), stage, run.seed(step, salt=1)):
                batch = needed_rows(weigh(part, stage), numbers)
                if total_over_ranks(len(batch)) == 0:  # no group has spread: no gradient, so no step
                    continue
                if needs_reference(stage, numbers):
                    batch = with_reference(run.policy, batch, rows)
                done = run.updater.accumulate(batch, stage, numbers, rows, measuring)
                tally.merge(done)
                if moved_too_far(done, stage.algorithm.target_kl):
                    run.updater.optimizer.zero_grad()
                    break
                update = run.updater.step(numbers.learning_rate, measuring)
                run.apply(update)
        run.record(step, planned, numbers, prepared, whole, tally, update)


def gather(run: Run, planned: PlannedStage, step: int) -> Rollout:
    """This step's scored rollout; with `refill`, groups without spread are replaced by fresh ones while tries last."""
    a = planned.stage.algorithm
    rounds = 1 + (a.refill if planned.stage.source == "policy" else 0)
    wanted = len(share(range(a.prompts_per_step)))
    rollout: Rollout | None = None
    for attempt in range(rounds):
        index = (step - planned.begin) * rounds + attempt
        fresh = gather_once(run, planned, index, run.seed(step, salt=10 + attempt), keep_samples=attempt == 0)
        if rounds == 1:
            return fresh
        live = fresh.live_groups()
        if rollout is not None:
            live[live.nonzero()[wanted - rollout.shape[0] :, 0]] = False
        kept = fresh.groups(live)
        rollout = kept if rollout is None else rollout.joined(kept)
        if rollout.shape[0] >= wanted:
            break
    assert rollout is not None
    return rollout if rollout.shape[0] else fresh


def gather_once(run: Run, planned: PlannedStage, index: int, seed: int, keep_samples: bool) -> Rollout:
    """This rank's share of prompts number `index` of this stage, sampled (or replayed) and scored.

    A rank whose share is empty works on one prompt of another rank's, and keeps none of its groups.
    """
    stage, task = planned.stage, planned.task
    every: list[Any] = task.prompts(index, stage.algorithm.prompts_per_step)
    prompts = share(every)
    if not prompts:
        return _made(run, planned, every[:1], rank_seed(seed), keep_samples=False).groups(torch.zeros(1, dtype=bool))
    return _made(run, planned, prompts, rank_seed(seed), keep_samples)


def _made(run: Run, planned: PlannedStage, prompts: list[Any], seed: int, keep_samples: bool) -> Rollout:
    stage, task, policy = planned.stage, planned.task, run.policy
    with run.clock("sample"), torch.no_grad():
        if stage.source == "stored":
            rollout = policy.replay(prompts, task.stored(prompts), seed)
        else:
            rollout = policy.sample(prompts, stage.algorithm.group_size, seed)
            outputs = policy.decode(rollout.samples)
    run.updater.keep_spare(rollout)
    if stage.source == "stored":
        return rollout
    with run.clock("score"):
        rollout = rollout.scored(task.score(prompts, outputs))
    if keep_samples:
        run.show(prompts, outputs, rollout)
    return replace(rollout, version=torch.full_like(rollout.version, run.version))


def needs_reference(stage: Any, numbers: Numbers) -> bool:
    """Whether the batch must carry log-probs under the reference (an exact KL computes its own)."""
    return stage.method == "grpo" and numbers.beta > 0 and stage.algorithm.kl != "exact"


def moved_too_far(tally: Tally, target: float | None) -> bool:
    """target-KL early stop: the policy is already further from the behaviour policy than allowed."""
    if target is None or "kl/behaviour/sum" not in tally.sums:
        return False
    return bool(tally.sums["kl/behaviour/sum"] / tally.sums["count"].clamp(min=1) > target)
