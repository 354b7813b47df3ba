"""The loop. One screen: every kind of policy, every stage, every objective runs through these lines."""

from __future__ import annotations

from typing import Any

from anygrpo.train.batches import minibatches, needed_rows, own_part, prepare, weigh, with_reference
from anygrpo.train.demonstrations import with_demonstrations
from anygrpo.train.distributed import whole_of
from anygrpo.train.importance import corrected
from anygrpo.train.measure import entropy_estimate
from anygrpo.train.objective import Tally
from anygrpo.train.parallel import total_over_ranks
from anygrpo.train.run import Run
from anygrpo.train.schedule import Numbers
from anygrpo.train.sharded import whole_weights


def train(run: Run) -> None:
    """Take the run's remaining steps. All that lasts is in `run`; all that is random follows from (seed, step)."""
    rows = run.recipe.training.rows_per_block
    for step in run.remaining_steps():
        planned, numbers = run.enter(step)
        stage, measuring = planned.stage, run.measuring(step)
        with whole_weights(run.policy):
            rollout = run.ahead.take(run, planned, step)
            numbers, taught = with_demonstrations(run, planned, numbers)
            run.ahead.start(run, planned, step)
        whole, first = whole_of(rollout)
        prepared = prepare(whole, stage, numbers, run.running)
        run.running = prepared.running
        tally, update = Tally(), {}
        with run.clock("update"):
            own, mismatch = corrected(run.policy, own_part(prepared, rollout, first), stage, rows)
            for part in minibatches(own, stage, run.seed(step, salt=1)):
                batch = needed_rows(weigh(part, stage), numbers)
                if taught is None and total_over_ranks(len(batch)) == 0:  # no group has spread: no gradient, no step
                    continue
                if needs_reference(stage, numbers):
                    batch = with_reference(run.policy, batch, rows)
                done = run.updater.accumulate(batch, stage, numbers, rows, measuring, taught)
                tally.merge(done)
                if moved_too_far(done, stage.algorithm.target_kl):
                    run.updater.optimizer.zero_grad()
                    break
                update = run.updater.step(numbers.learning_rate, run.measures_updates)
                run.apply(update)
        run.ahead.finish(run)
        run.record(
            step,
            planned,
            numbers,
            prepared,
            whole,
            tally,
            update | mismatch | entropy_estimate(rollout, stage, run.policy),
        )


def needs_reference(stage: Any, numbers: Numbers) -> bool:
    """Whether the batch must carry log-probs under the reference (an exact KL computes its own)."""
    return stage.method == "grpo" and numbers.beta > 0 and stage.algorithm.kl != "exact"


def moved_too_far(tally: Tally, target: float | None) -> bool:
    """target-KL early stop: the policy is already further from the behaviour policy than allowed."""
    if target is None or "kl/behaviour/sum" not in tally.sums:
        return False
    return bool(tally.sums["kl/behaviour/sum"] / tally.sums["count"].clamp(min=1) > target)
